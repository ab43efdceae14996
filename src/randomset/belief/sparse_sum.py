"""Sums over the sets of a sparse family: a sparse matrix as a module whose index tables are buffers."""

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
        # Integers: `.half()` leaves them alone. Not persistent: they follow from the budget.
        self.register_buffer("row", row, persistent=False)  # 64 bits: ONNX scatters by nothing less
        self.register_buffer("column", pairs.column[by_row].int(), persistent=False)
        self.register_buffer("start", (length.cumsum(0) - length).int(), persistent=False)
        self.register_buffer("value", value, persistent=False)
        self.register_buffer("divisor", divisor, persistent=False)
        self._weights: dict[tuple[torch.dtype, torch.device], Tensor | None] = {}
        self._turned: SparseSum | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums: (S, R) → (rows, R)."""
        if torch.compiler.is_compiling() or x.dtype not in (torch.float32, torch.float64) or x.shape[1] == 0:
            return self._gathered(x, self._weight(x))
        try:
            if torch.is_grad_enabled() and x.requires_grad:
                return _Fused.apply(x, self)
            return self._fused(x)
        except (NotImplementedError, RuntimeError):  # inside torch.func's transforms
            return self._gathered(x, self._weight(x))

    def _fused(self, x: Tensor) -> Tensor:
        """The same sums, several times faster; not to be exported, nor differentiated as they are."""
        kind = (x.dtype, x.device)
        if kind not in self._weights:
            self._weights[kind] = self._weight(x)
        return nn.functional.embedding_bag(
            self.column, x, self.start, mode="sum", per_sample_weights=self._weights[kind]
        )

    def turned(self, columns: int) -> SparseSum:
        """Return the transposed matrix, of which `columns` is the number of rows."""
        if self._turned is None:
            value = self.row.new_ones(len(self.row)) if self.value is None else self.value.long()
            found = SparseSum(Pairs(self.column.long(), self.row, value), columns, divisor=self.divisor)
            self.__dict__["_turned"] = found  # not a part: its buffers follow from these
        assert self._turned is not None
        return self._turned.to(self.row.device)

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
    """The sums of a sparse matrix; their gradient is the sums of the transposed one, any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sums: SparseSum) -> Tensor:
        ctx.sums, ctx.width = sums, len(x)
        return sums._fused(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.sums.turned(ctx.width)(gradient.contiguous()), None
