"""Rank sets of classes by overlap, with enough points and large enough ellipsoids."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from randomset.budgeting.gaussians import Ellipsoids, Floats
from randomset.budgeting.search import (
    REPLICATES,
    Focal,
    RankedSets,
    best_sets,
    patterns_from_ellipsoids,
    unit_ball,
)

__all__ = ["Overlaps", "overlap_curve", "top_overlaps"]

GROWTH = 1.15
"""Growth factor of the ellipsoids' radius while too few sets overlap."""

CERTAIN = 2.0
"""A choice is certain when the overlap is at least this many standard errors from the boundary."""

_MAX_STEPS = 150  # 1.15^150 exceeds any ratio of distances that floating point resolves
_INITIAL_POINTS = 2**17  # in all ellipsoids together
_MIN_POINTS = 8  # per ellipsoid and replicate
_CROWDING = 8  # with more ellipsoids around a point than this, fewer points are used to bound memory and time


@dataclass(frozen=True)
class Overlaps:
    """The chosen sets, best first, with the uncertainty of each overlap.

    `overlaps`, `errors` (standard errors) and `radii` (the Mahalanobis radius at which the set was found)
    have one entry per set; `radius` is the last radius tried and `points` the number of points per ellipsoid
    at that radius. `undecided` counts sets, chosen or not, within `CERTAIN` errors of the boundary.
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
        """Return the best `count` sets, with `undecided` counted at that boundary."""
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

    While fewer sets overlap, the radius of the ellipsoids is multiplied by `GROWTH` (unless `grow` is False);
    sets that overlap at a smaller radius rank first. At each radius, the number of points increases until
    the choice is certain or `max_points` in all ellipsoids together are used.

    >>> import numpy as np
    >>> means, covariances = np.array([[0.0, 0], [1, 0], [9, 0]]), np.stack([np.eye(2)] * 3)
    >>> top = top_overlaps(Ellipsoids.from_moments(means, covariances, [0, 1, 2], 2.0), 3, 2)
    >>> top.sets, top.radii.round(2).tolist()
    ([(0, 1), (1, 2)], [2.0, 4.02])
    """
    sets: list[Focal] = []
    parts: list[tuple[Floats, Floats, Floats]] = []
    undecided = 0
    for _ in range(_MAX_STEPS):
        ranked, points, undecided = _ranked(ellipsoids, num_classes, num_sets, sets, max_points, seed)
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
    """Return up to `at_most` overlapping sets at the first radius at which `at_least` sets overlap.

    Unlike in `top_overlaps`, all overlaps belong to one radius and are comparable.
    """
    for _ in range(_MAX_STEPS):
        ranked, points, undecided = _ranked(ellipsoids, num_classes, at_most, (), max_points, seed)
        if len(ranked) >= at_least or not grow:
            break
        ellipsoids = ellipsoids.with_radius(ellipsoids.radius * GROWTH)
    radii = np.full(len(ranked), ellipsoids.radius)
    return Overlaps(ranked.sets, ranked.overlaps, ranked.errors, radii, ellipsoids.radius, points, undecided)


def _ranked(
    ellipsoids: Ellipsoids, num_classes: int, count: int, known: Collection[Focal], max_points: int, seed: int
) -> tuple[RankedSets, int, int]:
    """Rank sets beyond the known ones, `count` in total, with enough points for a certain choice.

    Returns the sets, the number of points per ellipsoid, and the number of undecided sets.
    """
    needed = count - len(known)
    spare = max(8, count // 10)  # sets beyond the boundary that might belong inside it
    share = REPLICATES * len(ellipsoids)
    sample = ellipsoids.centres[:: 1 + len(ellipsoids) // 200]
    crowding = ellipsoids.contain(sample).sum(1).mean()
    most = max(_MIN_POINTS, _power_of_two(max_points * min(1, _CROWDING / crowding) / share))
    points = min(most, max(_MIN_POINTS, _power_of_two(min(_INITIAL_POINTS / share, 1024))))
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
    """Return the distance of each overlap from the boundary after `count` sets, in standard errors."""
    if len(overlaps) <= count or count == 0:
        return np.full(0, np.inf)
    distance = np.abs(overlaps - overlaps[count - 1 : count + 1].mean())
    return distance / np.maximum(errors, np.finfo(float).tiny)


def _power_of_two(number: float, *, up: bool = False) -> int:
    exponent = math.log2(max(number, 1))
    return 2 ** min(30, math.ceil(exponent) if up else math.floor(exponent))
