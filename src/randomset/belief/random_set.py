"""RandomSet: a batch of belief functions, and every question one may ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from randomset.belief import credal, decision, fusion, measures, storage, text, transforms
from randomset.belief.budget import Budget
from randomset.belief.labels import check_distribution
from randomset.belief.naming import Members
from randomset.belief.operators import BudgetOperators, over_sets_each
from randomset.belief.repair import Repair, Validity, repair_columns
from randomset.errors import BudgetError, InvalidBeliefError, MissingPackageError, RandomSetError

if TYPE_CHECKING:
    import numpy
    import pandas

__all__ = ["RandomSet"]

Rule = Literal["dempster", "yager", "disjunctive"]


class RandomSet:
    """An immutable batch of valid belief functions over one budget: what every prediction is.

    It holds the masses (…, |O|); all else is computed when first asked for, and kept. The budget always
    includes Θ, the set of all classes, which carries the mass that is given to nothing smaller.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> answer = RandomSet.from_mass(torch.tensor([[0.5, 0.0, 0.1, 0.4], [0.0, 0.0, 1.0, 0.0]]), budget)
    >>> answer
    RandomSet(2 samples over 3 classes, 2 sets; mean confidence 0.850, mean credal width 0.200)
    >>> answer.labels, answer.confidence, answer.credal_width
    (tensor([0, 2]), tensor([0.7000, 1.0000]), tensor([0.4000, 0.0000]))
    >>> print(answer.explain(0))
    0.50 on {cat}, 0.40 on {cat, dog}, 0.10 on {car}; predicted cat, probability in [0.50, 0.90]
    """

    mass: Tensor
    budget: Budget
    validity: Validity

    def __init__(self, mass: Tensor, budget: Budget, validity: Validity) -> None:
        # The named constructors check and repair; this one only stores (masses over a budget with Θ).
        self.__dict__.update(mass=mass, budget=budget, validity=validity)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a RandomSet is immutable: {name!r} cannot be set")

    # -- construction ---------------------------------------------------------------------------

    @classmethod
    def from_logits(
        cls, logits: Tensor, budget: Budget | BudgetOperators, repair: Repair = "clip"
    ) -> RandomSet:
        """Build from a network's belief logits (…, |O|): Bel = sigmoid(logits), then `repair_belief`.

        >>> RandomSet.from_logits(torch.tensor([4.0, -4.0, -4.0]), Budget.singletons("abc")).pignistic
        tensor([0.9647, 0.0177, 0.0177])
        """
        return cls._from_raw(_full_precision(logits), budget, repair, logits=True)

    @classmethod
    def from_belief(
        cls, belief: Tensor, budget: Budget | BudgetOperators, repair: Repair = "clip"
    ) -> RandomSet:
        """Build from beliefs (…, |O|) in [0, 1], valid or not: see `repair_belief`.

        >>> RandomSet.from_belief(torch.tensor([0.5, 0.2, 0.9]), Budget.from_sets([{0, 1}], 2)).mass
        tensor([0.5000, 0.2000, 0.3000])
        """
        belief = _full_precision(belief)
        if belief.numel():
            low, high = (end.item() for end in belief.detach().aminmax())
            if low < -1e-3 or high > 1 + 1e-3:
                raise InvalidBeliefError(
                    "the beliefs are out of range",
                    got=f"{low if low < 0 else high:.6g}",
                    expected="numbers from 0 to 1",
                    remedy="If these are a network's logits, use RandomSet.from_logits",
                )
        return cls._from_raw(belief, budget, repair, logits=False)

    @classmethod
    def _from_raw(
        cls, raw: Tensor, budget: Budget | BudgetOperators, repair: Repair, *, logits: bool
    ) -> RandomSet:
        operators = transforms.checked_operators(raw, budget, "logits" if logits else "beliefs")
        columns = repair_columns(operators, repair)
        mass, *sums = over_sets_each(columns, raw, operators.footprint, sigmoid=logits)
        family = operators.budget
        validity = Validity.from_sums(raw, *sums, universal_set=family.has_universal_set)
        return cls(mass, family.with_universal_set(), validity)

    @classmethod
    def from_mass(cls, mass: Tensor, budget: Budget | BudgetOperators) -> RandomSet:
        """Build from masses (…, |O|) that are non-negative and sum to one.

        >>> RandomSet.from_mass(torch.tensor([0.2, 0.3, 0.5]), Budget.from_sets([{0, 1}], 2)).lower
        tensor([0.2000, 0.3000])
        """
        mass = _full_precision(mass)
        family = transforms.checked_operators(mass, budget, "masses").budget
        check_distribution(mass, "masses")
        return cls(fusion.discount(mass, family, 1.0), family.with_universal_set(), Validity.perfect(mass))

    @classmethod
    def concatenate(cls, parts: Sequence[RandomSet]) -> RandomSet:
        """Join batches over the same budget along their first dimension."""
        if not parts:
            raise RandomSetError("there is nothing to concatenate", got="no random sets")
        for part in parts:
            if part.budget != parts[0].budget:
                raise BudgetError(
                    "random sets over different budgets cannot be joined",
                    got=repr(part.budget),
                    expected=repr(parts[0].budget),
                )
        mass = torch.cat([part.mass for part in parts])
        return cls(mass, parts[0].budget, Validity.concatenate([part.validity for part in parts]))

    # -- the belief function --------------------------------------------------------------------

    @cached_property
    def belief(self) -> Tensor:
        """Bel of every set of the budget: (…, |O|)."""
        return transforms.belief_from_mass(self.mass, self.budget)

    @cached_property
    def plausibility(self) -> Tensor:
        """Pl of every set of the budget: (…, |O|)."""
        return transforms.plausibility_from_mass(self.mass, self.budget)

    @cached_property
    def commonality(self) -> Tensor:
        """Q of every set of the budget: (…, |O|)."""
        return transforms.commonality_from_mass(self.mass, self.budget)

    @cached_property
    def pignistic(self) -> Tensor:
        """BetP, the central probability of every class: (…, N)."""
        return measures.pignistic_from_mass(self.mass, self.budget)

    @cached_property
    def lower(self) -> Tensor:
        """The lower probability of every class: (…, N)."""
        return credal.lower_from_mass(self.mass, self.budget)

    @cached_property
    def upper(self) -> Tensor:
        """The upper probability of every class: (…, N)."""
        return credal.upper_from_mass(self.mass, self.budget)

    # -- one number per sample ------------------------------------------------------------------

    @cached_property
    def _top(self) -> tuple[Tensor, Tensor]:
        confidence, labels = self.pignistic.max(-1)
        return confidence, labels

    @property
    def labels(self) -> Tensor:
        """The most likely class under BetP: (…), integers."""
        return self._top[1]

    @property
    def confidence(self) -> Tensor:
        """BetP of that class: (…)."""
        return self._top[0]

    @cached_property
    def credal_width(self) -> Tensor:
        """Upper minus lower probability of the sample's own most likely class (Eq. 8): (…)."""
        at = self.labels.unsqueeze(-1)
        return (self.upper.gather(-1, at) - self.lower.gather(-1, at)).squeeze(-1)

    @cached_property
    def entropy(self) -> Tensor:
        """The entropy of BetP in bits: (…)."""
        return measures.entropy(self.pignistic)

    @cached_property
    def nonspecificity(self) -> Tensor:
        """Σ m(A) log₂ |A|: (…)."""
        return measures.nonspecificity(self.mass, self.budget)

    @cached_property
    def discord(self) -> Tensor:
        """The conflict among the focal sets, in bits: (…)."""
        return measures.discord(self.mass, self.budget)

    @cached_property
    def upper_entropy(self) -> Tensor:
        """The largest entropy in the credal set, in bits: (…)."""
        return measures.upper_entropy(self.mass, self.budget)

    @cached_property
    def lower_entropy(self) -> Tensor:
        """The smallest entropy in the credal set, in bits, up to 8 classes: (…)."""
        return measures.lower_entropy(self.mass, self.budget)

    # -- questions ------------------------------------------------------------------------------

    def bounds(self, sets: Tensor | Iterable[Members]) -> tuple[Tensor, Tensor]:
        """Lower and upper probability of any sets of classes: see `set_bounds`."""
        return credal.set_bounds(self.mass, self.budget, sets)

    def cost_bounds(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper expected cost: see `expectation_bounds`."""
        return credal.expectation_bounds(cost, self.mass, self.budget)

    def contains(self, probabilities: Tensor) -> Tensor:
        """Whether the credal set contains a distribution: see `is_in_credal_set`."""
        return credal.is_in_credal_set(probabilities, self.mass, self.budget)

    def vertices(self) -> Tensor:
        """The vertices of the credal set, up to 8 classes: see `credal_vertices`."""
        return credal.credal_vertices(self.mass, self.budget)

    def decide(self, rule: Literal["dominance", "maximality", "e-admissibility"] = "dominance") -> Tensor:
        """The classes that are left by a set-valued decision: a mask (…, N); more in `decision`."""
        rules = {
            "dominance": decision.interval_dominance,
            "maximality": decision.maximality,
            "e-admissibility": decision.e_admissibility,
        }
        if rule not in rules:
            raise RandomSetError("unknown rule", got=rule, expected=f"one of {', '.join(rules)}")
        return rules[rule](self.mass, self.budget)

    def reject(self, level: float) -> Tensor:
        """The labels, with −1 where the confidence is below `level`."""
        return decision.reject(self.mass, self.budget, level)

    def combine(self, *others: RandomSet, rule: Rule = "dempster") -> RandomSet:
        """Fuse with the random sets of other models or sensors, sample by sample: see `fusion`."""
        rules = {
            "dempster": fusion.dempster,
            "yager": fusion.yager,
            "disjunctive": fusion.disjunctive,
        }
        if rule not in rules:
            raise RandomSetError("unknown rule", got=rule, expected=f"one of {', '.join(rules)}")
        sources = (self, *others)
        fused = rules[rule]([one.mass for one in sources], [one.budget for one in sources])
        return RandomSet(fused.mass, fused.budget, Validity.perfect(fused.mass))

    def discount(self, reliability: float | Tensor) -> RandomSet:
        """Believe it less: m'(A) = r m(A), and Θ gets the rest."""
        mass = fusion.discount(self.mass, self.budget, reliability)
        return RandomSet(mass, self.budget, self.validity)

    # -- the batch ------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """The shape of the batch; a single sample has none."""
        return self.mass.shape[:-1]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a single random set has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> RandomSet:
        """Select samples with a number, slice, mask or index tensor."""
        if isinstance(index, (int, slice)) and self.shape:
            return RandomSet(self.mass[index], self.budget, self.validity.map(lambda part: part[index]))
        # Select sample numbers, not masses: no index may reach into the sets.
        count = self.shape.numel()
        which = torch.arange(count, device=self.mass.device).reshape(self.shape)[index]
        mass = self.mass.reshape(count, -1)[which]
        return RandomSet(mass, self.budget, self.validity.map(lambda part: part.reshape(count)[which]))

    def __iter__(self) -> Iterator[RandomSet]:
        return (self[i] for i in range(len(self)))

    def to(self, *arguments: Any, **options: Any) -> RandomSet:
        """Move to a device or a floating type, as `torch.Tensor.to` does."""
        mass = self.mass.to(*arguments, **options)
        if not mass.is_floating_point():
            raise RandomSetError("masses need a floating type", got=str(mass.dtype))
        like = self.validity.map(lambda part: part.to(mass.device))
        return RandomSet(mass, self.budget, like)

    def numpy(self) -> dict[str, numpy.ndarray]:
        """Return everything as NumPy arrays by name."""
        small = ["labels", "confidence", "credal_width", "entropy", "nonspecificity"]
        names = [*small, "pignistic", "lower", "upper", "mass", "belief"]
        return {name: getattr(self, name).detach().cpu().numpy() for name in names}

    @property
    def label_names(self) -> list[str]:
        """The names of the predicted classes, over the flattened batch."""
        return [self.budget.classes[c] for c in self.labels.flatten().tolist()]

    def to_frame(self, *, probabilities: bool = False) -> pandas.DataFrame:
        """Return a pandas table with a row per sample; `probabilities` adds BetP of every class."""
        try:
            import pandas
        except ImportError:
            raise MissingPackageError("pandas", "frames") from None
        return pandas.DataFrame(text.columns(self, probabilities=probabilities))

    def explain(self, index: int | None = None, *, top: int = 3) -> str:
        """Say in words what one sample's belief function means."""
        return text.explanation(self if index is None else self[index], top)

    def __repr__(self) -> str:
        return text.summary(self)

    def _repr_html_(self) -> str:
        return text.html(self)

    # -- files ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write to one safetensors file, with the budget as JSON in its header."""
        return storage.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> RandomSet:
        """Read what `save` wrote; nothing in the file is executed."""
        return cls(*storage.load(Path(path)))


def _full_precision(x: Tensor) -> Tensor:
    """Masses are differences of beliefs: half precision would leave little of them."""
    return x.float() if x.is_floating_point() and x.dtype.itemsize < 4 else x
