"""How many sets are enough: the bend of the overlap curve."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["NEGLIGIBLE", "knee"]

NEGLIGIBLE = 0.01
"""Sets that overlap less than this share of the best one's overlap do not count."""


def knee(overlaps: Any) -> int:
    """Return how many sets to keep of a curve of overlaps, the largest first.

    The curve falls steeply over the sets that matter and is flat over the many that hardly overlap. With rank
    and overlap both scaled to [0, 1], the knee is the set furthest below the straight line from the first set
    to the last one that overlaps at least 1 % as much as the first; the sets up to it are kept, at least one.
    For a curve that halves every h sets, about 2.2 · h are kept: those that overlap at least a fifth as much
    as the best. A straight line has no knee: all its sets are kept.

    `Budgeter(num_sets="auto")` takes the curve at the first coverage where at least as many sets as classes
    overlap, so that all overlaps belong to one coverage and can be compared, and follows it for 100 sets, or
    four for each class if these are more. `randomset.report.plot_overlaps` draws it.

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
