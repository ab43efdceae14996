"""Fusion: combine the belief functions of several models or sensors into one.

The result has its own budget: the sets of all sources, closed under intersection or, for the disjunctive
rule, under union.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

import torch
from torch import Tensor

from randomset.belief.budget import Budget
from randomset.belief.credal import joint_shape
from randomset.belief.operators import BudgetOperators
from randomset.belief.sums import intersection_pairs, outside_modes, over_sets
from randomset.belief.transforms import checked_operators
from randomset.errors import BudgetError, InvalidBeliefError, RandomSetError, ShapeError, in_sample

__all__ = [
    "Fused",
    "conjunctive",
    "dempster",
    "discount",
    "disjunctive",
    "intersection_closure",
    "joint_budget",
    "mean",
    "yager",
]

Family = Budget | BudgetOperators

MAX_SETS = 2**16
"""Largest number of sets in the budget of a fused result."""


class Fused(NamedTuple):
    """A combined belief function: masses (…, |budget|), their budget, and the mass of ∅ (…)."""

    mass: Tensor
    budget: Budget
    conflict: Tensor


def conjunctive(masses: Sequence[Tensor], budgets: Sequence[Family], *, max_sets: int = MAX_SETS) -> Fused:
    """Unnormalised conjunctive rule, for reliable sources: m(C) = Σ_{A ∩ B = C} m₁(A) m₂(B).

    The mass of ∅ is the `conflict`; the other masses sum to 1 − conflict.

    >>> budget = Budget.from_sets([{"a", "b"}, {"b", "c"}], "abc")
    >>> masses = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0], [0.4, 0.0, 0.0, 0.0, 0.6]])
    >>> mass, fused, conflict = conjunctive(list(masses), [budget, budget])
    >>> mass, conflict                                     # {a, b} ∩ {b, c} = {b}
    (tensor([0.4000, 0.6000, 0.0000, 0.0000, 0.0000]), tensor(0.))
    """
    lifted, closed = _closed(masses, budgets, max_sets)
    mass = reduce(lambda first, second: _intersect(first, second, closed), lifted)
    return Fused(mass, closed, (1 - mass.sum(-1)).clamp_min(0))


def dempster(masses: Sequence[Tensor], budgets: Sequence[Family], *, max_sets: int = MAX_SETS) -> Fused:
    """Dempster's rule, for reliable, independent sources: the conjunctive rule divided by 1 − conflict.

    >>> budget = Budget.singletons("ab").with_universal_set()
    >>> dempster([torch.tensor([0.6, 0.0, 0.4]), torch.tensor([0.0, 0.5, 0.5])], [budget, budget]).mass
    tensor([0.4286, 0.2857, 0.2857])
    """
    (mass, *others), closed = _closed(masses, budgets, max_sets)
    total = agreement = mass.sum(-1, keepdim=True)
    for other in others:  # normalised after each source, so that many conflicts do not vanish in rounding
        mass = _intersect(mass / agreement, other, closed)
        agreement = _checked_agreement(mass, closed)
        total = total * agreement
    return Fused(mass / agreement, closed, (1 - total.squeeze(-1)).clamp_min(0))


def _checked_agreement(mass: Tensor, closed: Budget) -> Tensor:
    """Return the sum of the masses of non-empty sets (…, 1); raise an error if there are none."""
    agreement = mass.sum(-1, keepdim=True)
    # The fast transform subtracts, so total conflict leaves rounding errors.
    fast = closed.operators_on(mass.device).transform is not None
    threshold = 8 * torch.finfo(mass.dtype).eps if fast else 0.0
    if not torch.compiler.is_compiling() and (agreement <= threshold).any():
        index = tuple((agreement.squeeze(-1) <= threshold).nonzero()[0].tolist())
        raise InvalidBeliefError(
            "the sources are in total conflict",
            got=f"conflict 1{in_sample(index)}",
            expected="at least one set that all sources allow",
            remedy="Discount the sources first, or use yager, which assigns the conflict to Θ",
        )
    return agreement


def yager(masses: Sequence[Tensor], budgets: Sequence[Family], *, max_sets: int = MAX_SETS) -> Fused:
    """Yager's rule: the conjunctive rule with the conflict assigned to Θ, as ignorance.

    >>> budget = Budget.singletons("ab").with_universal_set()
    >>> yager([torch.tensor([0.6, 0.0, 0.4]), torch.tensor([0.0, 0.5, 0.5])], [budget, budget]).mass
    tensor([0.3000, 0.2000, 0.5000])
    """
    mass, budget, conflict = conjunctive(masses, budgets, max_sets=max_sets)
    mass = _lift(mass, budget, budget.with_universal_set())
    mass = torch.cat((mass[..., :-1], mass[..., -1:] + conflict.unsqueeze(-1)), -1)
    return Fused(mass, budget.with_universal_set(), conflict)


def disjunctive(masses: Sequence[Tensor], budgets: Sequence[Family], *, max_sets: int = MAX_SETS) -> Fused:
    """Disjunctive rule, if at least one source is reliable: m(C) = Σ_{A ∪ B = C} m₁(A) m₂(B).

    Every budget contains the singletons, whose unions are all sets: the result is over the power set.

    >>> budget = Budget.singletons("ab").with_universal_set()
    >>> disjunctive([torch.tensor([0.6, 0.0, 0.4]), torch.tensor([0.5, 0.5, 0.0])], [budget, budget]).mass
    tensor([0.3000, 0.0000, 0.7000])
    """
    families = _checked(masses, budgets)
    classes = families[0].classes
    if 2 ** len(classes) - 1 > max_sets:
        raise _too_many(f"the power set of {len(classes)} classes", max_sets)
    powerset = _powerset(classes)
    lifted = _lifted(masses, families, powerset)
    transform = powerset.operators_on(lifted[0].device).transform
    assert transform is not None

    def columns(stacked: Tensor) -> Tensor:
        # Bel of the result is the product of the sources' Bel.
        beliefs = (transform.add_subsets(transform.all_sets(mass)) for mass in stacked.chunk(len(lifted)))
        product = reduce(torch.mul, beliefs)
        return transform.in_budget(transform.add_subsets(product.clone(), sign=-1)).clamp_min(0)

    mass = over_sets(columns, torch.cat(lifted, -1), 4 * len(powerset))
    return Fused(mass, powerset, torch.zeros_like(mass[..., 0]))


def mean(masses: Sequence[Tensor], budgets: Sequence[Family]) -> Fused:
    """Average, for sources of equal weight, independent or not: m(A) = mean of m₁(A), m₂(A), ….

    Bel, Pl and BetP of the result are the means of the sources'. Its budget has the sets of all sources.

    >>> masses = [torch.tensor([0.6, 0.4]), torch.tensor([0.0, 0.5, 0.5])]
    >>> mean(masses, [Budget.singletons("ab"), Budget.powerset("ab")]).mass
    tensor([0.3000, 0.4500, 0.2500])
    """
    families = _checked(masses, budgets)
    joint = joint_budget(families)
    mass = torch.stack(_lifted(masses, families, joint)).mean(0)
    return Fused(mass, joint, torch.zeros_like(mass[..., 0]))


def joint_budget(budgets: Sequence[Budget]) -> Budget:
    """Return the budget with the sets of all budgets, which have the same classes.

    >>> joint_budget([Budget.from_sets([{0, 1}], 3), Budget.from_sets([{1, 2}], 3)])
    Budget(3 classes, 2 sets: {0, 1}, {1, 2})
    """
    return reduce(_union, budgets)


def discount(mass: Tensor, budget: Family, reliability: float | Tensor) -> Tensor:
    """Discounting: m'(A) = r m(A), and 1 − r more on Θ: (…, |O|) → masses over the budget with Θ.

    `reliability` is a number or a tensor (…), in [0, 1].

    >>> discount(torch.tensor([0.6, 0.4]), Budget.singletons("ab"), 0.5)
    tensor([0.3000, 0.2000, 0.5000])
    """
    family = checked_operators(mass, budget, "masses").budget
    weight = torch.as_tensor(reliability, dtype=mass.dtype, device=mass.device).unsqueeze(-1)
    if weight.numel() and not torch.compiler.is_compiling():
        low, high = (end.item() for end in weight.detach().aminmax())
        if not (low >= 0 and high <= 1):
            got = weight[~((weight >= 0) & (weight <= 1))][0].item()
            raise RandomSetError("reliability is out of range", got=got, expected="0 to 1")
    joint_shape(mass.shape[:-1], weight.shape[:-1])
    mass = _lift(mass, family, family.with_universal_set()) * weight
    mass[..., -1:].add_(1 - weight)  # in place: it is a new tensor
    return mass


@lru_cache(maxsize=32)
def intersection_closure(budget: Budget, *, max_sets: int = MAX_SETS) -> Budget:
    """Return the smallest budget that contains this one and is closed under intersection.

    >>> intersection_closure(Budget.from_sets([{0, 1, 2}, {1, 2, 3}], 4))
    Budget(4 classes, 3 sets: {1, 2}, {0, 1, 2}, {1, 2, 3})
    """
    if budget.is_downward_closed:
        return budget
    closed = {frozenset(focal) for focal in budget.sets}
    by_class: list[set[frozenset[int]]] = [set() for _ in budget.classes]
    pending = [focal for focal in closed if len(focal) > 1]
    while pending:
        focal = pending.pop()
        overlapping = set().union(*(by_class[c] for c in focal))
        for c in focal:
            by_class[c].add(focal)
        for intersection in {focal & second for second in overlapping} - closed:
            closed.add(intersection)
            pending.append(intersection)
        if len(closed) > max_sets:
            raise _too_many("the closure of the budget under intersection", max_sets)
    return Budget.from_sets(closed, budget.classes)


def _checked(masses: Sequence[Tensor], budgets: Sequence[Family]) -> list[Budget]:
    if len(masses) != len(budgets) or not masses:
        raise ShapeError(
            "fusion needs one budget per source", got=f"{len(masses)} masses and {len(budgets)} budgets"
        )
    families = [checked_operators(m, b, "masses").budget for m, b in zip(masses, budgets, strict=True)]
    for family in families:
        if family.classes != families[0].classes:
            raise BudgetError(
                "the sources have different classes", got=family.classes, expected=repr(families[0].classes)
            )
    return families


def _closed(
    masses: Sequence[Tensor], budgets: Sequence[Family], max_sets: int
) -> tuple[tuple[Tensor, ...], Budget]:
    """Express all masses over one budget that is closed under intersection."""
    families = _checked(masses, budgets)
    closed = intersection_closure(joint_budget(families), max_sets=max_sets)
    return _lifted(masses, families, closed), closed


def _lifted(masses: Sequence[Tensor], budgets: Sequence[Budget], larger: Budget) -> tuple[Tensor, ...]:
    """Express all masses over one larger budget, with a common batch shape."""
    lifted = [_lift(mass, budget, larger) for mass, budget in zip(masses, budgets, strict=True)]
    joint_shape(*(mass.shape[:-1] for mass in lifted))
    return torch.broadcast_tensors(*lifted)


@lru_cache(maxsize=32)
def _union(first: Budget, second: Budget) -> Budget:
    return first if first == second else Budget.from_sets({*first.sets, *second.sets}, first.classes)


@lru_cache(maxsize=4)
def _powerset(classes: tuple[str, ...]) -> Budget:
    return Budget.powerset(classes)


def _lift(mass: Tensor, budget: Budget, larger: Budget) -> Tensor:
    """Express masses over a larger budget."""
    if budget is larger or budget == larger:
        return mass
    if len(larger) == len(budget) + 1 and larger is budget.with_universal_set():
        return torch.nn.functional.pad(mass, (0, 1))
    index = _indices(budget, larger).to(mass.device)
    return mass.new_zeros(*mass.shape[:-1], len(larger)).index_copy(-1, index, mass)


@lru_cache(maxsize=32)
def _indices(budget: Budget, larger: Budget) -> Tensor:
    with outside_modes():
        return torch.tensor([larger._position[focal] for focal in budget.sets])


def _intersect(mass: Tensor, other: Tensor, closed: Budget) -> Tensor:
    """Combine two masses over a budget that is closed under intersection."""
    transform = closed.operators_on(mass.device).transform
    if transform is None:
        left, right, result = (index.to(mass.device) for index in _intersections(closed))

        def columns(stacked: Tensor) -> Tensor:
            first, second = stacked.chunk(2)
            product = first.index_select(0, left) * second.index_select(0, right)
            return torch.zeros_like(first).index_add(0, result, product)

        width = 2 * len(left)
    else:

        def columns(stacked: Tensor) -> Tensor:
            # The commonality of the result is the product of the commonalities.
            first, second = (transform.add_supersets(transform.all_sets(m)) for m in stacked.chunk(2))
            return transform.in_budget(transform.add_supersets(first * second, sign=-1)).clamp_min(0)

        width = 4 * len(transform.source)
    return over_sets(columns, torch.cat((mass, other), -1), width)


@lru_cache(maxsize=32)
def _intersections(closed: Budget) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices of all pairs of intersecting sets, and of their intersections."""
    index = {frozenset(focal): k for k, focal in enumerate(closed.sets)}
    sets = list(index)
    with outside_modes():
        left, right, _ = intersection_pairs(closed)
        pairs = zip(left.tolist(), right.tolist(), strict=True)
        return left, right, torch.tensor([index[sets[a] & sets[b]] for a, b in pairs])


def _too_many(what: str, max_sets: int) -> BudgetError:
    return BudgetError(
        f"{what} is too large",
        expected=f"at most {max_sets} sets",
        remedy="Combine budgets with fewer sets or classes, or raise max_sets",
    )
