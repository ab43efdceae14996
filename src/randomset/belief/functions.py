"""Properties of a batch of belief functions, computed on first access."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from randomset._core.checks import Members
from randomset.belief import credal, decision, measures, transforms
from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.errors import RandomSetError, ShapeError

__all__ = ["BeliefFunctions"]

_T = TypeVar("_T")


class lazy(Generic[_T]):
    """A cached property without the lock of `functools.cached_property`, which does not compile."""

    def __init__(self, function: Callable[[Any], _T]) -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> _T:
        if owner is None:
            return self  # type: ignore[return-value]
        value = self.function(owner)
        owner.__dict__[self.name] = value
        return value


class BeliefFunctions:
    """Read-only view of masses (…, |O|) over a budget with Θ; `RandomSet` adds construction and storage."""

    mass: Tensor
    budget: Budget
    _family: Budget | BudgetOperators  # the budget, or a network's operators for it

    # -- the belief function --------------------------------------------------------------------

    @lazy
    def belief(self) -> Tensor:
        """Bel of every set of the budget: (…, |O|)."""
        return transforms.belief_from_mass(self.mass, self._family)

    @lazy
    def plausibility(self) -> Tensor:
        """Pl of every set of the budget: (…, |O|)."""
        return transforms.plausibility_from_mass(self.mass, self._family)

    @lazy
    def commonality(self) -> Tensor:
        """Q of every set of the budget: (…, |O|)."""
        return transforms.commonality_from_mass(self.mass, self._family)

    @lazy
    def pignistic(self) -> Tensor:
        """BetP, the pignistic probability of every class: (…, N)."""
        return measures.pignistic_from_mass(self.mass, self._family)

    @lazy
    def lower(self) -> Tensor:
        """The lower probability of every class: (…, N)."""
        return credal.lower_from_mass(self.mass, self._family)

    @lazy
    def upper(self) -> Tensor:
        """The upper probability of every class: (…, N)."""
        return credal.upper_from_mass(self.mass, self._family)

    # -- one number per sample ------------------------------------------------------------------

    @lazy
    def _top(self) -> tuple[Tensor, Tensor]:
        confidence, labels = self.pignistic.max(-1)
        return confidence, labels

    @lazy
    def labels(self) -> Tensor:
        """The most probable class under BetP: (…), integers."""
        return self._top[1]

    @property
    def confidence(self) -> Tensor:
        """BetP of the predicted class: (…)."""
        return self._top[0]

    @lazy
    def credal_width(self) -> Tensor:
        """Upper minus lower probability of the predicted class (Eq. 8): (…)."""
        return (self.upper - self.lower).gather(-1, self.labels.unsqueeze(-1)).squeeze(-1)

    @lazy
    def entropy(self) -> Tensor:
        """The entropy of BetP in bits: (…)."""
        return measures.entropy(self.pignistic)

    @lazy
    def nonspecificity(self) -> Tensor:
        """Σ m(A) log₂ |A|: (…)."""
        return measures.nonspecificity(self.mass, self._family)

    @lazy
    def discord(self) -> Tensor:
        """The conflict among the focal sets, in bits: (…)."""
        return measures.discord(self.mass, self._family)

    @lazy
    def upper_entropy(self) -> Tensor:
        """The largest entropy in the credal set, in bits: (…)."""
        return measures.upper_entropy(self.mass, self._family)

    @lazy
    def lower_entropy(self) -> Tensor:
        """The smallest entropy in the credal set, in bits, up to 8 classes: (…)."""
        return measures.lower_entropy(self.mass, self._family)

    # -- credal set and decisions ---------------------------------------------------------------

    def bounds(self, sets: Tensor | Iterable[Members]) -> tuple[Tensor, Tensor]:
        """Lower and upper probability of arbitrary sets of classes: see `set_bounds`."""
        return credal.set_bounds(self.mass, self._family, sets)

    def cost_bounds(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper expected cost: see `expectation_bounds`."""
        return credal.expectation_bounds(cost, self.mass, self._family)

    def contains(self, probabilities: Tensor) -> Tensor:
        """Whether the credal set contains a distribution: see `is_in_credal_set`."""
        return credal.is_in_credal_set(probabilities, self.mass, self._family)

    def vertices(self) -> Tensor:
        """The vertices of the credal set, up to 8 classes: see `credal_vertices`."""
        return credal.credal_vertices(self.mass, self._family)

    def decide(
        self,
        rule: Literal["dominance", "maximality", "e-admissibility"] = "dominance",
        cost: Tensor | None = None,
    ) -> Tensor:
        """Mask of the classes, or with a cost matrix the actions, that a set-valued decision rule keeps.

        See `decision` for these rules and for rules that choose a single action.
        """
        if rule == "dominance":
            return decision.interval_dominance(self.mass, self._family, cost)
        if rule == "maximality":
            return decision.maximality(self.mass, self._family, cost)
        if rule == "e-admissibility" and cost is None:
            return decision.e_admissibility(self.mass, self._family)
        raise RandomSetError(
            "unknown rule",
            got=rule if cost is None else f"{rule} with costs",
            expected="dominance, maximality, or e-admissibility without costs",
        )

    def reject(self, level: float, by: Literal["pignistic", "lower"] = "pignistic") -> Tensor:
        """The labels, with −1 where their probability, or its lower bound, is below `level`."""
        return decision.reject(self.mass, self._family, level, by)

    def names(self, decisions: Tensor) -> list[Any]:
        """Convert decisions to names: labels to a name (None for −1), masks to a tuple of names."""
        classes = self.budget.classes
        if decisions.dtype == torch.bool:
            if decisions.shape[-1:] != (len(classes),):
                raise ShapeError(
                    "the mask does not match the classes",
                    got=f"shape {tuple(decisions.shape)}",
                    expected=f"(…, {len(classes)})",
                    remedy="For actions of a cost matrix, use decisions.nonzero()",
                )
            rows = decisions.reshape(-1, len(classes)).tolist()
            return [tuple(c for c, kept in zip(classes, row, strict=True) if kept) for row in rows]
        return [classes[c] if c >= 0 else None for c in decisions.flatten().tolist()]
