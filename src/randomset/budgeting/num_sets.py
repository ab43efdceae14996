"""The number of sets: which numbers are possible, and the knee of the overlap curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from randomset._core.checks import is_whole
from randomset.errors import BudgetError

__all__ = ["NEGLIGIBLE", "check_num_sets", "knee", "number_of_sets"]

NEGLIGIBLE = 0.01
"""Sets are ignored when their overlap is below this share of the largest overlap."""


def number_of_sets(num_classes: int) -> int:
    """Return the number of sets of two or more classes: 2^N − N − 1."""
    return 2**num_classes - num_classes - 1


def check_num_sets(num_sets: Any, num_classes: int, *, auto: bool = True) -> None:
    """Raise an error unless num_sets is a valid number of sets of `num_classes` classes."""
    if auto and isinstance(num_sets, str) and num_sets == "auto":
        return
    if not is_whole(num_sets, 0):
        problem = "num_sets must be a non-negative integer" + (' or "auto"' if auto else "")
        raise BudgetError(problem, got=repr(num_sets))
    if num_sets > number_of_sets(num_classes):
        raise BudgetError(
            "num_sets exceeds the number of sets that exist",
            got=f"{num_sets} sets of {num_classes} classes",
            expected=f"at most 2^{num_classes} − {num_classes} − 1 = {number_of_sets(num_classes)}",
            remedy="Request fewer, or use Budget.powerset for all of them",
        )


def knee(overlaps: Any) -> int:
    """Return how many sets to keep, given their overlaps in descending order.

    The curve falls steeply over the sets that matter and flattens over the many that hardly overlap. With
    rank and overlap both scaled to [0, 1], the knee is the set furthest below the straight line from the
    first set to the last set with at least 1 % of the first one's overlap; the sets up to the knee are kept,
    at least one. For a curve that halves every h sets, about 2.2 · h sets are kept: those with at least a
    fifth of the largest overlap. A straight line has no knee: all its sets are kept.

    `Budgeter(num_sets="auto")` uses the curve at the smallest coverage at which at least as many sets as
    classes overlap, so that the overlaps are comparable, and follows it for 100 sets or four per class,
    whichever is more. `randomset.report.plot_overlaps` draws it.

    >>> knee(0.5 ** (np.arange(100) / 5))
    12
    >>> knee([0.5, 0.4, 0.02, 0.01])
    3
    >>> knee([0.3])
    1
    """
    curve = np.asarray(overlaps, np.float64)
    curve = curve[curve >= NEGLIGIBLE * curve.max(initial=0)]
    if len(curve) < 3:
        return len(curve)
    rank = np.linspace(0, 1, len(curve))
    fall = (curve[0] - curve) / max(curve[0] - curve[-1], np.finfo(float).tiny)
    below = fall - rank
    return int(below.argmax()) + 1 if below.max() > 1e-9 else len(curve)
