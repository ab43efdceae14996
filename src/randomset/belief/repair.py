"""Repair of raw beliefs to valid mass functions, with a report of how invalid they were."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, get_args

import torch
from torch import Tensor

from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.belief.sums import over_sets_each
from randomset.belief.transforms import checked_operators
from randomset.errors import InvalidBeliefError, RandomSetError, in_sample

__all__ = ["Repair", "Validity", "repair_belief"]

Repair = Literal["clip", "projection", "cautious"]

_MAX_STEPS = 500  # of the projection; the power set of ten classes needs 20 to 50


@dataclass(frozen=True)
class Validity:
    """How far raw predictions were from valid belief functions, per sample.

    negative: the fraction of negative mass, Σ max(0, −m) / Σ |m|
    excess:   the excess of the sum over one, max(0, Σ m − 1)
    repaired: whether masses were changed, other than by assigning missing mass to Θ
    """

    negative: Tensor
    excess: Tensor
    repaired: Tensor

    @classmethod
    def perfect(cls, like: Tensor) -> Validity:
        """Return the validity of samples (…, |O|) that needed no repair."""
        zero = torch.zeros(like.shape[:-1], dtype=like.dtype, device=like.device)
        return cls(zero, zero.clone(), zero.bool())

    @classmethod
    def from_sums(cls, raw_sum: Tensor, kept: Tensor, *, universal_set: bool) -> Validity:
        """Build from the sums (…, 1) of all raw masses and of the positive ones."""
        raw_sum, kept = raw_sum.squeeze(-1), kept.squeeze(-1)
        removed = (kept - raw_sum).clamp_min(0)  # Σ max(0, −m)
        negative = removed / (kept + removed).clamp_min(_tolerance(kept))
        invalid = _is_invalid(raw_sum, kept, universal_set=universal_set)
        return cls(negative, (raw_sum - 1).clamp_min(0), invalid)

    @classmethod
    def from_masses(cls, raw: Tensor, kept: Tensor, *, universal_set: bool) -> Validity:
        """Build from raw masses (…, |O|) and the sums (…, 1) of the positive ones."""
        return cls.from_sums(raw.sum(-1, keepdim=True), kept, universal_set=universal_set)

    def map(self, function: Callable[[Tensor], Tensor]) -> Validity:
        """Apply a function to each of the three tensors."""
        return Validity(function(self.negative), function(self.excess), function(self.repaired))

    @staticmethod
    def joined(parts: Sequence[Validity], join: Callable[[list[Tensor]], Tensor]) -> Validity:
        """Join parts tensor by tensor, such as batches with `torch.cat` or samples with `torch.stack`."""
        return Validity(
            join([part.negative for part in parts]),
            join([part.excess for part in parts]),
            join([part.repaired for part in parts]),
        )

    @staticmethod
    def worst(parts: Sequence[Validity]) -> Validity:
        """Return the elementwise maximum, the validity of fused samples."""
        return Validity.joined(parts, lambda tensors: reduce(torch.maximum, tensors))

    @property
    def summary(self) -> dict[str, float]:
        """Means over the batch: fraction of negative mass, excess, fraction of repaired samples."""
        parts = {"negative": self.negative, "excess": self.excess, "repaired": self.repaired}
        return {name: part.float().mean().item() if part.numel() else 0.0 for name, part in parts.items()}

    def __repr__(self) -> str:
        negative, excess, repaired = self.summary.values()
        return (
            f"Validity({repaired:.1%} of samples repaired; "
            f"negative mass {negative:.2%}, excess of the sum {excess:.3f})"
        )


def repair_belief(
    belief: Tensor, budget: Budget | BudgetOperators, method: Repair = "clip"
) -> tuple[Tensor, Validity]:
    """Convert raw beliefs (…, |O|) to valid masses over the budget with Θ, and report their validity.

    Θ, the universal set, is the last set of `budget.with_universal_set()`; if the budget lacks it, the
    masses have one more column than the beliefs. No method changes valid beliefs.

    "clip", as in the paper: negative masses become 0; if the rest sums to less than 1, Θ gets the
    difference; if to more, it is divided by its sum. Fast, and exact for nearly valid predictions; on a
    noisy full power set it destroys the prediction, because Moebius inversion amplifies noise.

    "projection": the valid belief function nearest to the prediction, min Σ_A (Bel(A) − b(A))², by
    pairwise Frank–Wolfe steps on the masses. It averages noise over all sets instead of amplifying it, but is
    about a hundred times slower for invalid samples.

    "cautious": a belief function that claims no more than the prediction, Bel(A) ≤ b(A) for every set A of
    the budget. Negative masses m become 0, and the others are scaled down where they sum to more than a
    predicted belief; Θ gets the rest, and so has mass wherever the predictions contradict each other:

    m'(B) = max(0, m(B)) min_{A ⊇ B} min(1, b(A) / Σ_{C ⊆ A} max(0, m(C))), with b(Θ) = 1

    >>> budget = Budget.from_sets([{0, 1}], 3)
    >>> mass, validity = repair_belief(torch.tensor([[0.5, 0.2, 0.1, 0.6]]), budget)
    >>> mass                     # {0}, {1}, {2}, {0, 1} and Θ; the raw mass of {0, 1} was −0.1
    tensor([[0.5000, 0.2000, 0.1000, 0.0000, 0.2000]])
    >>> validity
    Validity(100.0% of samples repaired; negative mass 11.11%, excess of the sum 0.000)
    """
    operators = checked_operators(belief, budget, "beliefs")
    columns = repair_columns(operators, method)
    mass, raw_sum, kept = over_sets_each(columns, belief, operators.footprint)
    check_finite(belief, kept - raw_sum)
    return mass, Validity.from_sums(raw_sum, kept, universal_set=operators.budget.has_universal_set)


def repair_columns(
    operators: BudgetOperators, method: Repair
) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    """Return the repair as a function of sets-first beliefs: (|O|, R) → masses, and two rows of sums."""
    if method not in get_args(Repair):
        raise RandomSetError("unknown repair", got=method, expected=f"one of {', '.join(get_args(Repair))}")

    def columns(belief: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mass = operators.invert_subsets_with_theta(belief)  # a new tensor, modified in place below
        raw_sum = mass.sum(0, keepdim=True)
        mass.clamp_min_(0)
        if method == "cautious":
            kept = mass.sum(0, keepdim=True)
            return _scale_down(mass, belief, operators), raw_sum, kept
        mass, kept = clipped(mass, 0)
        if method == "projection":
            universal_set = operators.budget.has_universal_set
            invalid = _is_invalid(raw_sum, kept, universal_set=universal_set)
            mass = _project_invalid(mass, belief, invalid, operators)
        return mass, raw_sum, kept

    return columns


def clipped(mass: Tensor, sets: int) -> tuple[Tensor, Tensor]:
    """Make non-negative masses sum to one, in place; return them, and their sums before.

    The sets are in dimension `sets`. If the sum is less than one, Θ gets the rest.
    """
    kept = mass.sum(sets, keepdim=True)
    total = kept.clamp_min(1)
    mass.narrow(sets, -1, 1).add_(total - kept)
    return mass.div_(total), kept


def check_finite(raw: Tensor, sums: Tensor) -> None:
    """Raise if the raw outputs (…, |O|) or the sums (…, 1) of their masses are not finite."""
    if torch.compiler.is_compiling():
        return
    # The sum is quick to test, but finite numbers may overflow in it: only then is each number tested.
    if math.isfinite((sums if sums.numel() == 1 else sums.sum()).item()) or sums.isfinite().all():
        return
    index = tuple((~sums.squeeze(-1).isfinite()).nonzero()[0].tolist())
    infinite = raw[index][~raw[index].isfinite()]
    value = infinite[0].item() if infinite.numel() else "numbers whose sum overflows"
    error = InvalidBeliefError(
        "the network's outputs are not finite",
        got=f"{value}{in_sample(index)}",
        expected="finite numbers",
        remedy="Check that input for NaN; if all outputs are affected, the network has diverged",
    )
    error.sample = index[0] if index else None
    raise error


def _is_invalid(raw_sum: Tensor, kept: Tensor, *, universal_set: bool) -> Tensor:
    """Return which samples have negative mass, excess mass, or missing mass despite an output for Θ."""
    tolerance = _tolerance(raw_sum)
    invalid = (kept - raw_sum > tolerance) | (kept > 1 + tolerance)
    return invalid | (kept < 1 - tolerance) if universal_set else invalid


def _tolerance(x: Tensor) -> float:
    return 1e-5 if x.dtype.itemsize <= 4 else 1e-10


def _with_theta(belief: Tensor, operators: BudgetOperators) -> Tensor:
    """Append Bel(Θ) = 1, which holds for every mass function, or replace the predicted value by it."""
    proper_sets = belief[:-1] if operators.budget.has_universal_set else belief
    return torch.cat((proper_sets, torch.ones_like(belief[:1])))


def _scale_down(mass: Tensor, belief: Tensor, operators: BudgetOperators) -> Tensor:
    """Scale non-negative masses such that no sum over subsets exceeds the belief; Θ gets the rest."""
    smaller, operators, belief = mass[:-1], operators.complete, _with_theta(belief, operators)
    mass = torch.cat((smaller, torch.zeros_like(mass[:1])))
    sums = operators.sum_subsets(mass)
    excess = 1 - torch.where(sums > belief, belief / sums.clamp_min(torch.finfo(sums.dtype).tiny), 1)
    smaller = (mass * (1 - operators.largest_superset(excess)))[:-1]
    return torch.cat((smaller, (1 - smaller.sum(0, keepdim=True)).clamp_min(0)))


def _project_invalid(mass: Tensor, belief: Tensor, invalid: Tensor, operators: BudgetOperators) -> Tensor:
    belief, operators = _with_theta(belief, operators), operators.complete
    if torch.compiler.is_compiling():
        return torch.where(invalid, _project(belief, operators), mass)
    index = invalid.squeeze(0).nonzero().squeeze(-1)
    return mass.index_copy(1, index, _project(belief.index_select(1, index), operators))


def _project(belief: Tensor, operators: BudgetOperators) -> Tensor:
    """Minimise ‖ζ m − b‖² over the masses; differentiable through the steps."""
    n = operators.budget.num_classes
    start = _project_to_simplex(belief[:n])
    rest = (1 - start.sum(0, keepdim=True)).clamp_min(0)
    mass = torch.cat((start, torch.zeros_like(belief[n:-1]), rest))
    mass = _descend(mass, belief, operators, _MAX_STEPS)
    return mass / mass.sum(0, keepdim=True)


def _descend(mass: Tensor, belief: Tensor, operators: BudgetOperators, steps: int) -> Tensor:
    """Take pairwise Frank–Wolfe steps: each moves mass from the worst set to the best one."""
    residual = operators.sum_subsets(mass) - belief
    one = torch.ones_like(belief[:1])
    for step in range(steps):
        gradient = operators.sum_supersets(residual)
        best = gradient.argmin(0, keepdim=True)
        worst = torch.where(mass > 0, gradient, -torch.inf).argmax(0, keepdim=True)
        # The gap bounds the distance to the optimum. Each sample stops within a thousandth of it, on its own,
        # so that its result does not depend on the rest of the batch.
        gap = gradient.gather(0, worst) - gradient.gather(0, best)
        active = gap > 1e-3 * (residual * residual).sum(0, keepdim=True) + 1e-6
        if not torch.compiler.is_compiling() and 2 * active.sum() <= active.numel():
            index = active.squeeze(0).nonzero().squeeze(-1)  # drop the converged samples
            if not len(index):
                break
            remaining = _descend(mass[:, index], belief[:, index], operators, steps - step)
            return mass.index_copy(1, index, remaining)
        direction = torch.zeros_like(mass).scatter_add(0, best, one).scatter_add(0, worst, -one)
        change = operators.sum_subsets(direction)
        length = -(change * residual).sum(0, keepdim=True)
        length = length / (change * change).sum(0, keepdim=True).clamp_min(1e-12)
        length = torch.minimum(length.clamp_min(0), mass.gather(0, worst)) * active
        mass = (mass + length * direction).clamp_min(0)
        residual = residual + length * change
    return mass


def _project_to_simplex(values: Tensor) -> Tensor:
    """Return the nearest non-negative numbers with a sum of at most one, column by column."""
    clipped = values.clamp_min(0)
    ranked = values.sort(0, descending=True).values
    count = torch.arange(1, len(values) + 1, device=values.device)[:, None]
    level = (ranked.cumsum(0) - 1) / count
    level = level.gather(0, (ranked > level).sum(0, keepdim=True) - 1)
    return torch.where(clipped.sum(0, keepdim=True) > 1, (values - level).clamp_min(0), clipped)
