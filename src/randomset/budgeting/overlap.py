"""Which sets of classes overlap most: enough points to tell, and a coverage at which enough sets meet."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from randomset.budgeting.ellipsoids import Ellipsoids
from randomset.budgeting.gaussians import Floats
from randomset.budgeting.patterns import REPLICATES, patterns_from_ellipsoids, unit_ball
from randomset.budgeting.search import Focal, RankedSets, best_sets

__all__ = ["Overlaps", "overlap_curve", "top_overlaps"]

GROWTH = 1.15
"""The factor by which the radius of the ellipsoids grows when too few sets overlap."""

CERTAIN = 2.0
"""A set is certainly in or out when its overlap is this many standard errors from the boundary."""

_STEPS = 150  # a radius of 1.15^150 covers anything that floating point can tell apart
_FIRST_POINTS, _FEWEST = 2**17, 8  # in all ellipsoids together; in each of them and of the replicates
_CROWD = (
    8  # where more ellipsoids than this lie around a point, points are fewer: memory and time are bounded
)


@dataclass(frozen=True)
class Overlaps:
    """The chosen sets, best first, with how well each is known.

    `overlaps`, `errors` (standard errors) and `radii` (the Mahalanobis radius at which the set was found)
    have one entry for each set; `radius` is the last that was tried, `points` the number in each ellipsoid
    there. `undecided` counts sets, chosen or not, whose overlap is within `CERTAIN` errors of the boundary.
    """

    sets: list[Focal]
    overlaps: Floats
    errors: Floats
    radii: Floats
    radius: float
    points: int
    undecided: int

    def __len__(self) -> int:
        """Return the number of sets."""
        return len(self.sets)

    def cut(self, count: int) -> Overlaps:
        """Return the best of them, with `undecided` counted anew at this boundary."""
        certainty = _certainty(self.overlaps, self.errors, count)
        return replace(
            self,
            sets=self.sets[:count],
            overlaps=self.overlaps[:count],
            errors=self.errors[:count],
            radii=self.radii[:count],
            undecided=int((certainty < CERTAIN).sum()),
        )


def top_overlaps(
    ellipsoids: Ellipsoids,
    num_classes: int,
    num_sets: int,
    *,
    grow: bool = True,
    max_points: int = 2**20,
    seed: int = 0,
) -> Overlaps:
    """Return the `num_sets` sets of two or more classes with the largest intersection over union.

    Where fewer sets overlap, the radius of the ellipsoids grows by `GROWTH`, again and again, until enough do
    (unless `grow` is off); sets that met at a smaller radius rank first. At each radius the number of points
    grows until it is certain which sets are chosen, or `max_points` in all ellipsoids together are used.

    >>> import numpy as np
    >>> means, rounds = np.array([[0.0, 0], [1, 0], [9, 0]]), np.stack([np.eye(2)] * 3)
    >>> found = top_overlaps(Ellipsoids.from_moments(means, rounds, [0, 1, 2], 2.0), 3, 2)
    >>> found.sets, found.radii.round(2).tolist()
    ([(0, 1), (1, 2)], [2.0, 4.02])
    """
    sets: list[Focal] = []
    parts: list[tuple[Floats, Floats, Floats]] = []
    undecided = 0
    for _ in range(_STEPS):
        ranked, points, undecided = _certain(ellipsoids, num_classes, num_sets, sets, max_points, seed)
        sets += ranked.sets
        parts.append((ranked.overlaps, ranked.errors, np.full(len(ranked), ellipsoids.radius)))
        if len(sets) == num_sets or not grow:
            break
        ellipsoids = ellipsoids.with_radius(ellipsoids.radius * GROWTH)
    overlaps, errors, radii = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Overlaps(sets, overlaps, errors, radii, ellipsoids.radius, points, undecided)


def overlap_curve(
    ellipsoids: Ellipsoids,
    num_classes: int,
    at_least: int,
    at_most: int,
    *,
    grow: bool = True,
    max_points: int = 2**20,
    seed: int = 0,
) -> Overlaps:
    """Return all overlapping sets, `at_most` of them, at the first radius where `at_least` overlap.

    Unlike those of `top_overlaps`, the overlaps all belong to one radius, and can be compared.
    """
    for _ in range(_STEPS):
        ranked, points, undecided = _certain(ellipsoids, num_classes, at_most, (), max_points, seed)
        if len(ranked) >= at_least or not grow:
            break
        ellipsoids = ellipsoids.with_radius(ellipsoids.radius * GROWTH)
    radii = np.full(len(ranked), ellipsoids.radius)
    return Overlaps(ranked.sets, ranked.overlaps, ranked.errors, radii, ellipsoids.radius, points, undecided)


def _certain(
    ellipsoids: Ellipsoids, num_classes: int, count: int, known: Collection[Focal], max_points: int, seed: int
) -> tuple[RankedSets, int, int]:
    """Rank sets that are not known yet, up to `count` with the known ones, with points enough to be certain.

    Returns the sets, the points in each ellipsoid, and how many sets stayed undecided.
    """
    needed = count - len(known)
    spare = max(8, count // 10)  # sets beyond the boundary, to see whether they might belong before it
    share = REPLICATES * len(ellipsoids)
    some = ellipsoids.centres[:: 1 + len(ellipsoids) // 200]
    crowd = ellipsoids.contain(some).sum(1).mean()
    most = max(_FEWEST, _power_of_two(max_points * min(1, _CROWD / crowd) / share))
    points = min(most, max(_FEWEST, _power_of_two(min(_FIRST_POINTS / share, 1024))))
    while True:
        ball = unit_ball(ellipsoids.dimensions, points, seed)
        patterns = patterns_from_ellipsoids(ellipsoids, num_classes, ball)
        ranked = best_sets(patterns, count + spare).without(known)
        certainty = _certainty(ranked.overlaps, ranked.errors, needed)
        worst = float(certainty.min(initial=np.inf))
        if worst >= CERTAIN or worst == 0 or points >= most:
            undecided = int((certainty < CERTAIN).sum())
            return ranked.first(needed), REPLICATES * points, undecided
        points = min(most, points * _power_of_two((CERTAIN / worst) ** 1.5, up=True))


def _certainty(overlaps: Floats, errors: Floats, count: int) -> Floats:
    """Return how many standard errors each overlap is away from the boundary after `count` sets."""
    if len(overlaps) <= count or count == 0:
        return np.full(0, np.inf)
    away = np.abs(overlaps - overlaps[count - 1 : count + 1].mean())
    return away / np.maximum(errors, np.finfo(float).tiny)


def _power_of_two(number: float, *, up: bool = False) -> int:
    exponent = math.log2(max(number, 1))
    return 2 ** min(30, math.ceil(exponent) if up else math.floor(exponent))
