"""From a network's raw beliefs to a valid mass function, with an account of what was mended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
from torch import Tensor

from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.belief.sets_first import over_sets_each
from randomset.belief.transforms import checked_operators
from randomset.errors import InvalidBeliefError, RandomSetError, in_sample

__all__ = ["Repair", "Validity", "repair_belief"]

Repair = Literal["clip", "projection"]

_MAX_STEPS = 500  # of the projection; 20 to 50 suffice on the power set of ten classes


@dataclass(frozen=True)
class Validity:
    """How far the raw predictions were from valid belief functions; one number per sample.

    negative: the share of negative mass, Σ max(0, −m) / Σ |m|
    excess:   by how much the masses summed to more than one, max(0, Σ m − 1)
    repaired: whether the masses had to be changed beyond giving the missing mass to Θ
    """

    negative: Tensor
    excess: Tensor
    repaired: Tensor

    @classmethod
    def perfect(cls, like: Tensor) -> Validity:
        """Return the account of samples (…, |O|) of which nothing had to be mended."""
        zero = torch.zeros(like.shape[:-1], dtype=like.dtype, device=like.device)
        return cls(zero, zero.clone(), zero.bool())

    @classmethod
    def from_sums(cls, raw: Tensor, raw_sum: Tensor, kept: Tensor, *, universal_set: bool) -> Validity:
        """Build from the sum of the raw masses and of those that are positive; refuse what is not finite."""
        raw_sum, kept = raw_sum.squeeze(-1), kept.squeeze(-1)
        if not torch.compiler.is_compiling() and not (kept - raw_sum).isfinite().all():
            where = tuple((~(kept - raw_sum).isfinite()).nonzero()[0].tolist())
            bad = raw[where][~raw[where].isfinite()]
            value = bad[0].item() if bad.numel() else "numbers whose sums overflow"
            error = InvalidBeliefError(
                "the network's outputs are not finite",
                got=f"{value}{in_sample(where)}",
                expected="finite numbers",
                remedy="Look for NaN in that input; a network that gives it everywhere has diverged",
            )
            error.sample = where[0] if where else None
            raise error
        removed = (kept - raw_sum).clamp_min(0)  # Σ max(0, −m)
        negative = removed / (kept + removed).clamp_min(_tolerance(raw))
        invalid = _is_invalid(raw_sum, kept, universal_set=universal_set)
        return cls(negative, (raw_sum - 1).clamp_min(0), invalid)

    def map(self, function: Callable[[Tensor], Tensor]) -> Validity:
        """Apply a function of tensors to each part."""
        return Validity(function(self.negative), function(self.excess), function(self.repaired))

    @staticmethod
    def joined(parts: Sequence[Validity], join: Callable[[list[Tensor]], Tensor]) -> Validity:
        """Join the accounts of several batches with `torch.cat`, or of single samples with `torch.stack`."""
        return Validity(
            join([part.negative for part in parts]),
            join([part.excess for part in parts]),
            join([part.repaired for part in parts]),
        )

    @staticmethod
    def worst(parts: Sequence[Validity]) -> Validity:
        """Return the account of samples that were made from several: of each part the worst."""
        return Validity(
            reduce(torch.maximum, [part.negative for part in parts]),
            reduce(torch.maximum, [part.excess for part in parts]),
            reduce(torch.logical_or, [part.repaired for part in parts]),
        )

    @property
    def summary(self) -> dict[str, float]:
        """The batch in three numbers: mean share of negative mass, mean excess, share of repaired."""
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
    """Turn raw beliefs (…, |O|) into valid masses over the budget with Θ, and say what was mended.

    Θ, the universal set, is the last set of `budget.with_universal_set()`; if the budget lacks it, the
    masses have one column more than the beliefs. Valid beliefs are left alone by both methods.

    "clip", the paper's: negative masses become 0; what is missing to 1 goes to Θ; if the rest sums to
    more than 1, it is divided by its sum. Exact on nearly valid predictions, and as fast as they come;
    on a noisy full power set it drowns the prediction, because Moebius inversion amplifies noise.

    "projection": the valid belief function nearest to the prediction, min Σ_A (Bel(A) − b(A))², by
    pairwise Frank–Wolfe steps on the masses. It averages the noise over all sets instead of amplifying
    it, and is some hundred times slower; only the invalid samples pay for it.

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
    universal_set = operators.budget.has_universal_set
    return mass, Validity.from_sums(belief, raw_sum, kept, universal_set=universal_set)


def repair_columns(
    operators: BudgetOperators, method: Repair
) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    """Return the repair as a function of sets-first beliefs: (|O|, R) → masses, and two rows of sums."""
    if method not in ("clip", "projection"):
        raise RandomSetError("unknown repair", got=method, expected="'clip' or 'projection'")

    def columns(belief: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mass = operators.invert_subsets_with_room(belief)  # a new tensor: what follows is in place
        raw_sum = mass.sum(0, keepdim=True)
        mass.clamp_min_(0)
        kept = mass.sum(0, keepdim=True)
        mass[-1:].add_((1 - kept).clamp_min(0))
        mass.div_(kept.clamp_min(1))
        if method == "projection":
            universal_set = operators.budget.has_universal_set
            invalid = _is_invalid(raw_sum, kept, universal_set=universal_set)
            mass = _project_invalid(mass, belief, invalid, operators)
        return mass, raw_sum, kept

    return columns


def _is_invalid(raw_sum: Tensor, kept: Tensor, *, universal_set: bool) -> Tensor:
    """Say which samples have negative mass, too much of it, or too little in spite of an output for Θ."""
    tolerance = _tolerance(raw_sum)
    invalid = (kept - raw_sum > tolerance) | (kept > 1 + tolerance)
    return invalid | (kept < 1 - tolerance) if universal_set else invalid


def _tolerance(x: Tensor) -> float:
    return 1e-5 if x.dtype.itemsize <= 4 else 1e-10


def _project_invalid(mass: Tensor, belief: Tensor, invalid: Tensor, operators: BudgetOperators) -> Tensor:
    # Bel(Θ) = 1 in every mass function, whatever the network says of it.
    below = belief[:-1] if operators.budget.has_universal_set else belief
    belief, operators = torch.cat((below, torch.ones_like(belief[:1]))), operators.complete
    if torch.compiler.is_compiling():
        return torch.where(invalid, _project(belief, operators), mass)
    which = invalid.squeeze(0).nonzero().squeeze(-1)
    return mass.index_copy(1, which, _project(belief.index_select(1, which), operators))


def _project(belief: Tensor, operators: BudgetOperators) -> Tensor:
    """Minimise ‖ζ m − b‖² over the masses: each step moves mass from the worst set to the best one.

    Autograd differentiates through the steps.
    """
    n = operators.budget.num_classes
    start = _nearest_below_one(belief[:n])
    rest = (1 - start.sum(0, keepdim=True)).clamp_min(0)
    mass = torch.cat((start, torch.zeros_like(belief[n:-1]), rest))
    mass = _descend(mass, belief, operators, _MAX_STEPS)
    return mass / mass.sum(0, keepdim=True)


def _descend(mass: Tensor, belief: Tensor, operators: BudgetOperators, steps: int) -> Tensor:
    """Take pairwise Frank–Wolfe steps from the given masses."""
    residual = operators.sum_subsets(mass) - belief
    one = torch.ones_like(belief[:1])
    for step in range(steps):
        gradient = operators.sum_supersets(residual)
        best = gradient.argmin(0, keepdim=True)
        worst = torch.where(mass > 0, gradient, -torch.inf).argmax(0, keepdim=True)
        # The gap bounds what a sample can still gain: it stops within a thousandth of its optimum, so
        # that its result does not depend on the others in the batch.
        gap = gradient.gather(0, worst) - gradient.gather(0, best)
        going = gap > 1e-3 * (residual * residual).sum(0, keepdim=True) + 1e-6
        if not torch.compiler.is_compiling() and 2 * going.sum() <= going.numel():
            which = going.squeeze(0).nonzero().squeeze(-1)  # the others have arrived
            if not len(which):
                break
            left = _descend(mass[:, which], belief[:, which], operators, steps - step)
            return mass.index_copy(1, which, left)
        direction = torch.zeros_like(mass).scatter_add(0, best, one).scatter_add(0, worst, -one)
        change = operators.sum_subsets(direction)
        length = -(change * residual).sum(0, keepdim=True)
        length = length / (change * change).sum(0, keepdim=True).clamp_min(1e-12)
        length = torch.minimum(length.clamp_min(0), mass.gather(0, worst)) * going
        mass = (mass + length * direction).clamp_min(0)
        residual = residual + length * change
    return mass


def _nearest_below_one(values: Tensor) -> Tensor:
    """Return the nearest non-negative numbers whose sum is at most one, column by column."""
    clipped = values.clamp_min(0)
    ranked = values.sort(0, descending=True).values
    count = torch.arange(1, len(values) + 1, device=values.device)[:, None]
    level = (ranked.cumsum(0) - 1) / count
    level = level.gather(0, (ranked > level).sum(0, keepdim=True) - 1)
    return torch.where(clipped.sum(0, keepdim=True) > 1, (values - level).clamp_min(0), clipped)
