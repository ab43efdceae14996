"""Choosing the number of sets: the knee of the overlap curve."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["NEGLIGIBLE", "knee"]

NEGLIGIBLE = 0.01
"""Sets are ignored when their overlap is below this share of the largest overlap."""


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
