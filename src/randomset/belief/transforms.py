"""Transforms between mass, belief, plausibility and commonality.

Every function is linear and differentiable. It takes tensors (…, |O|) over the sets of a budget, of any
floating dtype and on any device, and returns the same dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators, operators_of
from randomset.belief.sums import over_sets
from randomset.errors import RandomSetError, ShapeError

__all__ = ["belief_from_mass", "commonality_from_mass", "mass_from_belief", "plausibility_from_mass"]


def belief_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Belief: Bel(A) = Σ_{B ⊆ A} m(B) (Eq. 2, left): (…, |O|) → (…, |O|).

    >>> budget = Budget.powerset(["c1", "c2", "c3"])
    >>> mass = torch.tensor([0.5, 0.0, 0.1, 0.4, 0.0, 0.0, 0.0])   # the example of Section 2
    >>> belief_from_mass(mass, budget)
    tensor([0.5000, 0.0000, 0.1000, 0.9000, 0.6000, 0.1000, 1.0000])
    """
    operators = checked_operators(mass, budget, "masses")
    return over_sets(operators.sum_subsets, mass, operators.footprint)


def mass_from_belief(belief: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Mass: the inverse of `belief_from_mass` on the budget: (…, |O|) → (…, |O|).

    m(A) = Σ_{B ⊆ A, B ∈ O} μ(A, B) Bel(B), with μ the Moebius function of the budget ordered by inclusion.
    On a downward closed budget μ(A, B) = (−1)^{|A∖B|} and this is Eq. 2, right; on others the plain
    alternating sum would be wrong. An invalid belief vector, such as a network's raw output, gives negative
    masses or a sum above one: see `repair_belief`.

    >>> budget = Budget.from_sets([{"a", "b", "c"}], "abc")          # not downward closed
    >>> mass_from_belief(torch.tensor([0.0, 0.0, 1.0, 1.0]), budget)  # the label c
    tensor([0., 0., 1., 0.])
    """
    operators = checked_operators(belief, budget, "beliefs")
    return over_sets(operators.invert_subsets, belief, operators.footprint)


def plausibility_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Plausibility: Pl(A) = Σ_{B ∩ A ≠ ∅} m(B) = 1 − Bel(Θ ∖ A): (…, |O|) → (…, |O|).

    >>> budget = Budget.powerset(["c1", "c2", "c3"])
    >>> plausibility_from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4, 0.0, 0.0, 0.0]), budget)
    tensor([0.9000, 0.4000, 0.1000, 0.9000, 1.0000, 0.5000, 1.0000])
    """
    operators = checked_operators(mass, budget, "masses")
    return over_sets(operators.sum_intersecting, mass, operators.footprint)


def commonality_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Commonality: Q(A) = Σ_{B ⊇ A} m(B): (…, |O|) → (…, |O|).

    >>> budget = Budget.powerset(["c1", "c2", "c3"])
    >>> commonality_from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4, 0.0, 0.0, 0.0]), budget)
    tensor([0.9000, 0.4000, 0.1000, 0.4000, 0.0000, 0.0000, 0.0000])
    """
    operators = checked_operators(mass, budget, "masses")
    return over_sets(operators.sum_supersets, mass, operators.footprint)


def checked_operators(x: Tensor, budget: Budget | BudgetOperators, what: str) -> BudgetOperators:
    """Return the operators for a tensor over the budget's sets; raise if its shape or dtype is wrong."""
    if not isinstance(x, Tensor):
        raise ShapeError(
            f"the {what} must be a tensor",
            got=type(x).__name__,
            expected="a torch.Tensor, then the budget",
            remedy="Convert arrays and lists with torch.as_tensor",
        )
    operators = operators_of(budget, x)
    family = operators.budget
    remedy = ""
    if x.dim() and x.shape[-1] == len(family) + 1 and not family.has_universal_set:
        remedy = "The budget of a RandomSet includes Θ: use random_set.budget"
    check_last(x, len(family), what, family, remedy)
    return operators


def as_numbers(
    values: object, what: str, kind: type[RandomSetError] = ShapeError, remedy: str = ""
) -> Tensor:
    """Convert tensors, arrays and lists to a tensor."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise kind(
            f"the {what} must be numbers",
            got=f"{type(values).__name__} {str(values)[:60]}",
            expected="a tensor, an array or a list of numbers, then the budget",
            remedy=remedy,
        ) from None


def check_last(x: Tensor, size: int, what: str, meaning: object, remedy: str = "") -> None:
    """Raise if a tensor is not floating-point or its last dimension is not `size`."""
    if x.dim() == 0 or x.shape[-1] != size:
        raise ShapeError(
            f"the {what} have the wrong shape",
            got=str(tuple(x.shape)),
            expected=f"(…, {size}) for {meaning}",
            remedy=remedy,
        )
    if not x.is_floating_point():
        raise ShapeError(
            f"the {what} must be floating-point",
            got=str(x.dtype),
            expected="float32 or float64",
            remedy="Convert them with .float()",
        )
