"""The *sets-first* layout: how operators of a budget are applied to batches of any shape.

Operators work on tensors of shape (|O|, …), because gathering and adding whole rows is several times faster
than indexing the last dimension, forward and backward. `over_sets` applies such a function to the usual
layout (…, |O|).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["over_sets", "over_sets_each", "product_over_sets"]

_BLOCK = 2**19  # numbers per block of samples, so that they stay in the cache
_BLOCK_CONTIGUOUS = 2**22  # if the input is sets-first already
_BLOCK_ACCELERATOR = 2**26
_SMALLEST_BLOCK = 16  # samples; rows shorter than a cache line are slow to copy


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
    batch, columns = x.shape[:-1], x.reshape(-1, x.shape[-1]).T
    return (matrix @ columns).T.reshape(*batch, len(matrix))


def over_sets_each(
    function: Callable[[Tensor], tuple[Tensor, ...]],
    x: Tensor,
    width: int = 0,
    *,
    sigmoid: bool = False,
) -> tuple[Tensor, ...]:
    """Apply a function with several results, like `over_sets`; with `sigmoid`, to sigmoid(x)."""
    batch, columns = x.shape[:-1], x.reshape(-1, x.shape[-1]).T
    whole = torch.compiler.is_compiling() or (torch.is_grad_enabled() and x.requires_grad)
    limit = _BLOCK_CONTIGUOUS
    if not whole and not columns.is_contiguous():
        width, limit = max(width, len(columns)), _BLOCK
    limit = limit if x.device.type == "cpu" else _BLOCK_ACCELERATOR
    block = max(_SMALLEST_BLOCK, limit // width) if width else columns.shape[1]
    if whole or columns.shape[1] <= block:
        results = function((columns.sigmoid() if sigmoid else columns).contiguous())
    else:
        results = _in_blocks(function, columns, block, sigmoid)
    return tuple(part.T.reshape(*batch, len(part)) for part in results)


def _in_blocks(
    function: Callable[[Tensor], tuple[Tensor, ...]],
    columns: Tensor,
    block: int,
    sigmoid: bool,
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
