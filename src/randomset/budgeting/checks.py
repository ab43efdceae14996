"""Checks of the features and of the requested number of sets."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from randomset._core.checks import is_whole
from randomset.errors import BudgetError, RandomSetError

__all__ = ["check_num_sets", "check_spread", "number_of_sets"]


def check_spread(points: NDArray[Any]) -> None:
    """Raise an error if all points are equal."""
    if not (points != points[0]).any():
        raise RandomSetError(
            "features are constant: all samples are identical",
            remedy="Check that the features come from the right layer of a trained model",
        )


def number_of_sets(num_classes: int) -> int:
    """Return the number of sets of two or more classes: 2^N − N − 1."""
    return 2**num_classes - num_classes - 1


def check_num_sets(num_sets: Any, num_classes: int, *, auto: bool = True) -> None:
    """Raise an error unless num_sets is a valid number of sets of `num_classes` classes."""
    if auto and isinstance(num_sets, str) and num_sets == "auto":
        return
    if not is_whole(num_sets, 0):
        raise BudgetError(
            "num_sets must be a non-negative integer" + (' or "auto"' if auto else ""),
            got=repr(num_sets),
        )
    if num_sets > number_of_sets(num_classes):
        raise BudgetError(
            "num_sets exceeds the number of sets that exist",
            got=f"{num_sets} sets of {num_classes} classes",
            expected=f"at most 2^{num_classes} − {num_classes} − 1 = {number_of_sets(num_classes)}",
            remedy="Request fewer, or use Budget.powerset for all of them",
        )
