"""Sparse matrix products as a module, for budgets with few of the possible sets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from randomset.belief.poset import Pairs

__all__ = ["SparseSum"]


class SparseSum(nn.Module):
    """A sparse matrix with rational entries, applied along the first dimension.

    out[r] = Σ_i value[i] / divisor[i] · x[column[i]] over the entries i of row r: (S, R) → (rows, R).

    >>> sums = SparseSum(Pairs(*torch.tensor([[0, 0, 2], [1, 2, 0], [1, 1, -1]])), num_rows=3)
    >>> sums(torch.tensor([[10.0], [1.0], [2.0]])).T
    tensor([[  3.,   0., -10.]])
    """

    row: Tensor
    column: Tensor
    start: Tensor
    value: Tensor | None
    divisor: Tensor | None

    def __init__(self, pairs: Pairs, num_rows: int, divisor: Tensor | None = None) -> None:
        super().__init__()
        row, by_row = pairs.row.sort(stable=True)
        length = torch.bincount(row, minlength=num_rows)
        value = None if (pairs.value == 1).all() and divisor is None else pairs.value[by_row].int()
        divisor = None if divisor is None else divisor[by_row].int()
        # Integers, which `.half()` does not change. Not persistent: they follow from the budget.
        self.register_buffer("row", row, persistent=False)  # ONNX scatters with 64-bit indices only
        self.register_buffer("column", pairs.column[by_row].int(), persistent=False)
        self.register_buffer("start", (length.cumsum(0) - length).int(), persistent=False)
        self.register_buffer("value", value, persistent=False)
        self.register_buffer("divisor", divisor, persistent=False)
        self._weights: dict[tuple[torch.dtype, torch.device], Tensor | None] = {}
        self._transposed: SparseSum | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums: (S, R) → (rows, R)."""
        if torch.compiler.is_compiling() or x.dtype not in (torch.float32, torch.float64) or x.shape[1] == 0:
            return self._gathered(x, self._weight(x))
        try:
            if torch.is_grad_enabled() and x.requires_grad:
                return _Fused.apply(x, self)
            return self._fused(x)
        except (NotImplementedError, RuntimeError):  # inside a torch.func transform
            return self._gathered(x, self._weight(x))

    def _fused(self, x: Tensor) -> Tensor:
        """Compute the sums several times faster, without support for export and autograd."""
        kind = (x.dtype, x.device)
        if kind not in self._weights:
            self._weights[kind] = self._weight(x)
        return nn.functional.embedding_bag(
            self.column, x, self.start, mode="sum", per_sample_weights=self._weights[kind]
        )

    def transposed(self, num_columns: int) -> SparseSum:
        """Return the transposed matrix; `num_columns` is the number of columns of this one."""
        if self._transposed is None:
            value = self.row.new_ones(len(self.row)) if self.value is None else self.value.long()
            matrix = SparseSum(Pairs(self.column.long(), self.row, value), num_columns, divisor=self.divisor)
            self.__dict__["_transposed"] = matrix  # bypasses nn.Module: it is a cache, not a submodule
        assert self._transposed is not None
        return self._transposed.to(self.row.device)

    def _gathered(self, x: Tensor, weight: Tensor | None) -> Tensor:
        terms = x.index_select(0, self.column)
        if weight is not None:
            terms = terms * weight[:, None]
        return x.new_zeros(len(self.start), x.shape[1]).index_add(0, self.row, terms)

    def _weight(self, x: Tensor) -> Tensor | None:
        if self.value is None:
            return None
        value = self.value.to(x.dtype)
        return value if self.divisor is None else value / self.divisor.to(x.dtype)


class _Fused(torch.autograd.Function):
    """Product with a sparse matrix; the gradient is the product with its transpose, to any order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sums: SparseSum) -> Tensor:
        ctx.sums, ctx.width = sums, len(x)
        return sums._fused(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.sums.transposed(ctx.width)(gradient.contiguous()), None
