"""Sums over sets: the inclusion order as pairs, sparse products, the fast transform over the power set.

Operators work on *sets-first* tensors of shape (|O|, …), because gathering and adding whole rows is several
times faster than indexing the last dimension, forward and backward. `over_sets` applies such a function to
the usual layout (…, |O|).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget
from randomset.errors import BudgetError

__all__ = [
    "ONE",
    "ZERO",
    "Pairs",
    "PowerSetTransform",
    "SparseSum",
    "intersection_pairs",
    "member_pairs",
    "moebius_pairs",
    "outside_modes",
    "over_sets",
    "over_sets_each",
    "product_over_sets",
    "subset_pairs",
]

ONE, ZERO = torch.tensor(1.0, device="cpu"), torch.tensor(0.0, device="cpu")
"""For every device and dtype: with a Python number, a small operation takes three times as long."""

_BLOCK = 2**19  # numbers per block of samples, so that they stay in the cache
_BLOCK_CONTIGUOUS = 2**22  # if the input is sets-first already
_BLOCK_ACCELERATOR = 2**26
_SMALLEST_BLOCK = 16  # samples; rows shorter than a cache line are slow to copy


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

    def largest(self, x: Tensor) -> Tensor:
        """Return the largest x[column[i]] of each row, 0 if all are negative: (S, R) → (rows, R)."""
        terms = x.index_select(0, self.column)
        return x.new_zeros(len(self.start), x.shape[1]).scatter_reduce(
            0, self.row[:, None].expand_as(terms), terms, "amax"
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

    def largest_superset(self, array: Tensor) -> Tensor:
        """Replace each entry by the largest over its supersets."""
        for c in range(self.num_classes):
            without, containing = array.unflatten(0, (-1, 2, 2**c)).unbind(1)
            array = torch.stack((torch.maximum(without, containing), containing), 1).flatten(0, 2)
        return array

    def sum_per_class(self, array: Tensor) -> Tensor:
        """Sum over the sets that contain each class, (2^N, …) → (N, …), in 2 · 2^N steps."""
        sums = []
        for _ in range(self.num_classes):
            without, containing = array.chunk(2)  # the last remaining class
            sums.append(containing.sum(0))
            array = without + containing
        return torch.stack(sums[::-1])


def over_sets(function: Callable[[Tensor], Tensor], x: Tensor, width: int = 0) -> Tensor:
    """Apply a function of sets-first tensors, (S, R) → (T, R), to a batch (…, S) → (…, T).

    `width` is the number of intermediate values per sample. Large batches are processed in blocks, so that
    these values and the transposed copy of the input stay in the cache; not under autograd or a compiler.
    The result keeps the sets-first memory layout, which saves the next operator the transposition.
    """
    (result,) = over_sets_each(lambda columns: (function(columns),), x, width)
    return result


def product_over_sets(matrix: Tensor, x: Tensor) -> Tensor:
    """Multiply a batch (…, S) by a dense matrix (T, S) → (…, T), without transposing the batch."""
    if x.is_contiguous():  # a single sample is, in either layout
        return nn.functional.linear(x, matrix)
    batch, columns = x.shape[:-1], x.reshape(-1, x.shape[-1]).T
    return (matrix @ columns).T.reshape(*batch, len(matrix))


def over_sets_each(
    function: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor, width: int = 0, *, sigmoid: bool = False
) -> tuple[Tensor, ...]:
    """Apply a function with several results, like `over_sets`; with `sigmoid`, to sigmoid(x)."""
    matrix = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    columns = matrix.T
    whole = torch.compiler.is_compiling() or (torch.is_grad_enabled() and x.requires_grad)
    limit = _BLOCK_CONTIGUOUS
    if not whole and not columns.is_contiguous():
        width, limit = max(width, columns.shape[0]), _BLOCK
    limit = limit if x.device.type == "cpu" else _BLOCK_ACCELERATOR
    block = max(_SMALLEST_BLOCK, limit // width) if width else columns.shape[1]
    if whole or columns.shape[1] <= block:
        results = function((columns.sigmoid() if sigmoid else columns).contiguous())
    else:
        results = _in_blocks(function, columns, block, sigmoid)
    if x.dim() == 2:
        return tuple(part.T for part in results)
    return tuple(part.T.reshape(*x.shape[:-1], part.shape[0]) for part in results)


def _in_blocks(
    function: Callable[[Tensor], tuple[Tensor, ...]], columns: Tensor, block: int, sigmoid: bool
) -> tuple[Tensor, ...]:
    count = columns.shape[1]
    results: tuple[Tensor, ...] = ()
    buffer = columns.new_empty(len(columns), block)
    for start in range(0, count, block):
        part = columns[:, start : start + block]
        if part.shape != buffer.shape:  # the last block
            buffer = columns.new_empty(part.shape)
        # Multiplying by 1 copies a transposed tensor up to twice as fast as `contiguous`.
        outputs = function(torch.mul(part.sigmoid() if sigmoid else part, 1, out=buffer))
        results = results or tuple(output.new_empty(len(output), count) for output in outputs)
        for result, output in zip(results, outputs, strict=True):
            result[:, start : start + block] = output
    return results


_LARGEST_EXACT = 2**24  # up to which float32 represents every integer


class Pairs(NamedTuple):
    """A sparse matrix in coordinate format: `value[i]` at `row[i]`, `column[i]`."""

    row: Tensor
    column: Tensor
    value: Tensor


@contextmanager
def outside_modes() -> Iterator[None]:
    """Create ordinary CPU tensors, whatever mode or default device the caller has set.

    Autograd rejects tensors created in inference mode, and the default device may be "meta".
    """
    with torch.inference_mode(False), torch.device("cpu"):
        yield


def member_pairs(budget: Budget) -> Pairs:
    """Return the (|O| × N) matrix with 1 where the class is in the set."""
    row = torch.repeat_interleave(_sizes(budget))
    column = torch.tensor([c for focal in budget.sets for c in focal])
    return Pairs(row, column, torch.ones_like(column))


def intersection_pairs(budget: Budget) -> Pairs:
    """Return |A ∩ B| for every pair of intersecting sets in the budget, including (A, A).

    >>> pairs = intersection_pairs(Budget.from_sets([{0, 1}], 2))
    >>> torch.stack(pairs).T.tolist()
    [[0, 0, 1], [0, 2, 1], [1, 1, 1], [1, 2, 1], [2, 0, 1], [2, 1, 1], [2, 2, 2]]
    """
    membership = _sparse(member_pairs(budget), torch.float32)
    return _pairs(_product(membership, membership.t()))


def subset_pairs(budget: Budget, intersecting: Pairs) -> Pairs:
    """Select the pairs (A, B) with B ⊆ A from the intersecting pairs; all values are 1."""
    inside = intersecting.value == _sizes(budget)[intersecting.column]
    row, column = intersecting.row[inside], intersecting.column[inside]
    return Pairs(row, column, torch.ones_like(row))


def moebius_pairs(budget: Budget, subsets: Pairs) -> Pairs:
    """Return the inverse of the subset matrix of a budget.

    With ζ(A, B) = 1 iff B ⊆ A, the rows of μ = ζ⁻¹ give m(A) = Σ_{B ⊆ A} μ(A, B) Bel(B). On a downward
    closed budget μ(A, B) = (−1)^{|A∖B|}, Eq. 2; in general it is the Moebius function of the budget's
    inclusion order: integer, triangular, and non-zero only where B ⊆ A.
    """
    sizes = _sizes(budget)
    if budget.is_downward_closed:
        sign = 1 - 2 * ((sizes[subsets.row] - sizes[subsets.column]) % 2)
        return Pairs(subsets.row, subsets.column, sign)
    strict = _sparse(subsets._replace(value=subsets.row != subsets.column), torch.float64)
    diagonal = torch.arange(len(budget))
    identity = _sparse(Pairs(diagonal, diagonal, torch.ones_like(diagonal)), torch.float64)
    # μ = I − (ζ − I) μ, and ζ − I is nilpotent: no chain of sets is longer than the number of distinct
    # cardinalities, so as many substitutions give the exact inverse.
    inverse = identity
    for _ in range(len(set(sizes.tolist())) - 1):
        inverse = (identity - _product(strict, inverse)).coalesce()
    row, column, value = _pairs(inverse)
    if value.abs().max() >= _LARGEST_EXACT:
        raise BudgetError(
            "the Moebius coefficients of the budget are too large to be exact",
            got=f"{value.abs().max().item():.3g}",
            expected=f"less than {_LARGEST_EXACT}",
            remedy="Add the intersections of the large sets to the budget",
        )
    return Pairs(row[value != 0], column[value != 0], value[value != 0])


def _sizes(budget: Budget) -> Tensor:
    return torch.tensor([len(focal) for focal in budget.sets])


def _sparse(pairs: Pairs, dtype: torch.dtype) -> Tensor:
    """Return pairs as a sparse tensor; its shape follows from them, since every set and class has one."""
    index, value = torch.stack((pairs.row, pairs.column)), pairs.value.to(dtype)
    return torch.sparse_coo_tensor(index, value, check_invariants=False).coalesce()


def _product(left: Tensor, right: Tensor) -> Tensor:
    with warnings.catch_warnings():  # torch warns about the format that it uses internally
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse.mm(left, right)


def _pairs(matrix: Tensor) -> Pairs:
    matrix = matrix.coalesce()
    row, column = matrix.indices()
    return Pairs(row, column, matrix.values().round().long())
