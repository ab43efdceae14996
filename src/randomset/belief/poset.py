"""The inclusion order of the sets in a budget, as lists of pairs, and its Moebius function."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from randomset.belief.budget import Budget
from randomset.errors import BudgetError

__all__ = ["Pairs", "intersection_pairs", "moebius_pairs", "outside_modes", "subset_pairs"]

_LARGEST_EXACT = 2**24  # float32 represents integers up to this exactly


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


def intersection_pairs(budget: Budget) -> Pairs:
    """Return |A ∩ B| for every pair of intersecting sets in the budget, including (A, A).

    >>> pairs = intersection_pairs(Budget.from_sets([{0, 1}], 2))
    >>> torch.stack(pairs).T.tolist()
    [[0, 0, 1], [0, 2, 1], [1, 1, 1], [1, 2, 1], [2, 0, 1], [2, 1, 1], [2, 2, 2]]
    """
    membership = _membership(budget)
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
    shape = (len(budget), len(budget))
    strict = torch.sparse_coo_tensor(
        torch.stack(subsets[:2]), (subsets.row != subsets.column).double(), shape, check_invariants=False
    ).coalesce()
    diagonal = torch.arange(len(budget))
    identity = torch.sparse_coo_tensor(
        torch.stack((diagonal, diagonal)), torch.ones_like(diagonal).double(), shape, check_invariants=False
    )
    # μ = I − (ζ − I) μ, and ζ − I is nilpotent: no chain of sets is longer than the number of distinct
    # cardinalities, so that many substitutions give the exact inverse.
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


def _membership(budget: Budget) -> Tensor:
    """Return the sparse (|O| × N) matrix with 1 where the class is in the set."""
    owner = torch.repeat_interleave(_sizes(budget))
    member = torch.tensor([c for focal in budget.sets for c in focal])
    return torch.sparse_coo_tensor(
        torch.stack((owner, member)),
        torch.ones(len(member), dtype=torch.float32),
        (len(budget), budget.num_classes),
        check_invariants=False,
    ).coalesce()


def _product(left: Tensor, right: Tensor) -> Tensor:
    with warnings.catch_warnings():  # torch warns about the format that it uses internally
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse.mm(left, right)


def _pairs(matrix: Tensor) -> Pairs:
    matrix = matrix.coalesce()
    row, column = matrix.indices()
    return Pairs(row, column, matrix.values().round().long())
