"""The fast subset-sum (zeta) transform over all 2^N sets."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget

__all__ = ["PowerSetTransform"]


class PowerSetTransform(nn.Module):
    """Sums over subsets and supersets in N · 2^N steps, through an array of all 2^N sets.

    The index (code) of set A in that array is Σ_{c ∈ A} 2^c. Sets outside the budget are zero.
    """

    code: Tensor
    source: Tensor

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self.num_classes = budget.num_classes
        code = torch.tensor([sum(1 << c for c in focal) for focal in budget.sets])
        source = torch.full((2**budget.num_classes,), len(budget))  # index of the zero that all_sets appends
        source[code] = torch.arange(len(budget))
        self.register_buffer("code", code.int(), persistent=False)
        self.register_buffer("source", source.int(), persistent=False)

    def all_sets(self, x: Tensor) -> Tensor:
        """Return a new (2^N, …) array with x (|O|, …) at the budget's sets and zero elsewhere."""
        return torch.cat((x, torch.zeros_like(x[:1]))).index_select(0, self.source)

    def in_budget(self, array: Tensor) -> Tensor:
        """Read the budget's sets from an array of all sets."""
        return array.index_select(0, self.code)

    def add_subsets(self, array: Tensor, sign: int = 1) -> Tensor:
        """Replace each entry by the sum over its subsets (sign −1: the Moebius inverse), in place."""
        for c in range(self.num_classes):
            pair = array.unflatten(0, (-1, 2, 2**c))
            pair[:, 1].add_(pair[:, 0], alpha=sign)
        return array

    def add_supersets(self, array: Tensor, sign: int = 1) -> Tensor:
        """Replace each entry by the sum over its supersets (sign −1: the inverse), in place."""
        for c in range(self.num_classes):
            pair = array.unflatten(0, (-1, 2, 2**c))
            pair[:, 0].add_(pair[:, 1], alpha=sign)
        return array

    def sum_per_class(self, array: Tensor) -> Tensor:
        """Sum over the sets that contain each class, (2^N, …) → (N, …), in 2 · 2^N steps."""
        sums = []
        for _ in range(self.num_classes):
            without, containing = array.chunk(2)  # the last remaining class
            sums.append(containing.sum(0))
            array = without + containing
        return torch.stack(sums[::-1])
