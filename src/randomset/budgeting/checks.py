"""Checks of what a budget is chosen from, and of how many sets are asked for."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from randomset._core.checks import is_whole
from randomset.errors import BudgetError, RandomSetError

__all__ = ["check_num_sets", "check_spread", "number_of_sets"]


def check_spread(points: NDArray[Any]) -> None:
    """Refuse points that all lie in one place."""
    if not (points != points[0]).any():
        raise RandomSetError(
            "the features are constant: every sample is the same",
            remedy="Check that the features come from the right layer of a trained model",
        )


def number_of_sets(num_classes: int) -> int:
    """Return how many sets of two or more classes there are: 2^N − N − 1."""
    return 2**num_classes - num_classes - 1


def check_num_sets(num_sets: Any, num_classes: int, *, auto: bool = True) -> None:
    """Refuse a number of sets that is none, or that is more than exist."""
    if auto and isinstance(num_sets, str) and num_sets == "auto":
        return
    if not is_whole(num_sets, 0):
        raise BudgetError(
            "num_sets is not a number of sets",
            got=repr(num_sets),
            expected="a whole number" + (' or "auto"' if auto else ""),
        )
    if num_sets > number_of_sets(num_classes):
        raise BudgetError(
            "more sets are asked for than exist",
            got=f"{num_sets} sets of {num_classes} classes",
            expected=f"at most 2^{num_classes} − {num_classes} − 1 = {number_of_sets(num_classes)}",
            remedy="Ask for fewer; Budget.powerset gives all of them",
        )
