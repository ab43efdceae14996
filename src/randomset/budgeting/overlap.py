"""The sets of classes with the largest overlap: how many to choose, which, and a report of the choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from randomset._core.checks import braces, is_whole, listed
from randomset._core.packages import optional_package
from randomset.budgeting.gaussians import Ellipsoids, Floats, coverage_from_radius
from randomset.budgeting.reduce import stratified_sample
from randomset.budgeting.search import (
    REPLICATES,
    Focal,
    RankedSets,
    best_sets,
    patterns_from_ellipsoids,
    unit_ball,
)
from randomset.errors import BudgetError

if TYPE_CHECKING:
    from pandas import DataFrame

    from randomset.budgeting.budgeter import Budgeter

__all__ = [
    "NEGLIGIBLE",
    "BudgetReport",
    "Overlaps",
    "check_num_sets",
    "clusters_of",
    "frame_of_sets",
    "knee",
    "number_of_sets",
    "overlap_curve",
    "table_of_sets",
    "top_overlaps",
]

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

    The curve falls steeply over the sets that matter and flattens over the many that hardly overlap. Sets
    with less than 1 % of the largest overlap are ignored. With rank and overlap scaled to [0, 1], the knee is
    the set furthest below the straight line from the first to the last set; the sets up to the knee are kept.
    If the curve halves every h sets, these are about 2.2 · h: those with at least a fifth of the largest
    overlap. If it is a straight line, all sets are kept.

    `Budgeter(num_sets="auto")` uses the curve at the smallest coverage at which at least as many sets as
    classes overlap, for 100 sets or four per class, whichever is more. `randomset.report.plot_overlaps`
    draws it.

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


# -- the ranking -----------------------------------------------------------------------------------


GROWTH = 1.15
"""Growth factor of the ellipsoids' radius while too few sets overlap."""

CERTAIN = 2.0
"""A choice is certain if the overlap is at least this many standard errors from the boundary."""

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


# -- reports and tables ----------------------------------------------------------------------------


_MAX_DRAWN = 100  # classes: more would hide each other
_POINTS_DRAWN = 60  # per class


@dataclass(frozen=True)
class BudgetReport:
    """Sampling, timing, coverage and warnings of a fit.

    Of `samples` samples, `used` were reduced; each ellipsoid got `points` points; `undecided` sets are too
    close to the boundary for a certain choice; `growth` maps each Mahalanobis radius beyond the requested one
    to the number of sets found there; `seconds` is the time of each step.
    """

    samples: int
    used: int
    dimensions: int
    counts: dict[str, int]
    points: int
    undecided: int
    coverage: float
    growth: dict[float, int]
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def describe(
        cls, budgeter: Budgeter, chosen: Overlaps, radius: float, seconds: dict[str, float]
    ) -> BudgetReport:
        """Build the report of a fitted budgeter; `radius` corresponds to the requested coverage."""
        gaussians, names = budgeter.gaussians_, budgeter.classes_
        count, dimensions = gaussians.count, gaussians.dimensions
        scarce = [names[c] for c in (gaussians.has_few_points & (count > 0)).nonzero()[0].tolist()]
        absent = [names[c] for c in (count == 0).nonzero()[0].tolist()]
        notes = []
        if scarce:
            notes.append(
                f"{_classes(scarce)}: at most {dimensions} samples in {dimensions} dimensions, too few for a "
                "covariance; using the covariance pooled over all classes"
            )
        if absent:
            notes.append(f"{_classes(absent)}: no samples; included in the budget as singletons only")
        if budgeter.num_sets != "auto" and len(chosen) < budgeter.num_sets:
            missing = f"only {len(chosen)} of {budgeter.num_sets} sets"
            if budgeter.grow and len(chosen) == number_of_sets(int((count > 0).sum())):
                notes.append(f"{missing} of classes with samples exist")
            elif budgeter.grow:
                notes.append(f"{missing} overlap, however large the ellipsoids")
            else:
                notes.append(
                    f"{missing} overlap at coverage {budgeter.coverage:g}; grow=True enlarges the ellipsoids"
                )
        if dimensions > 10:
            notes.append(
                f"in {dimensions} dimensions almost all volume lies near the boundary and overlaps vanish; "
                "a reducer to few dimensions separates classes better"
            )
        return cls(
            samples=budgeter.samples_seen_,
            used=int(count.sum()),
            dimensions=dimensions,
            counts=dict(zip(names, count.tolist(), strict=True)),
            points=chosen.points,
            undecided=chosen.undecided,
            coverage=budgeter.coverage,
            growth=dict(Counter(r for r in chosen.radii.tolist() if r > radius)),
            seconds=seconds,
            warnings=tuple(notes),
        )

    def __str__(self) -> str:
        certain = "the choice of sets is certain"
        if self.undecided:
            certain = f"{self.undecided} sets too close to the boundary for certainty (increase max_points)"
        lines = [
            f"{self.used:,} of {self.samples:,} samples, {len(self.counts)} classes, "
            f"{self.dimensions} dimension{'s' if self.dimensions > 1 else ''}",
            f"{self.points:,} points in each ellipsoid; {certain}",
        ]
        if self.growth:
            steps = (f"{sets} at {self._coverage(radius)}" for radius, sets in self.growth.items())
            lines.append(f"ellipsoids grown beyond {100 * self.coverage:g} %: {', '.join(steps)}")
        if self.seconds:
            steps = (f"{step} {spent:.2f}" for step, spent in self.seconds.items())
            lines.append(f"seconds: {', '.join(steps)}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.warnings)])

    def _coverage(self, radius: float) -> str:
        return f"{100 * coverage_from_radius(radius, self.dimensions):.6g} % (radius {radius:.3g})"


def table_of_sets(ranking: Overlaps, classes: Sequence[str], dimensions: int, most: int | None = None) -> str:
    """Format ranked sets as a text table, best first."""
    shown = len(ranking) if most is None else min(most, len(ranking))
    names = [braces((classes[c] for c in focal), shorten=8) for focal in ranking.sets[:shown]]
    width = max(map(len, ["set", *names]))
    lines = [f"{'rank':>4}  {'set':<{width}}  overlap  ± error  coverage"]
    for i, name in enumerate(names):
        coverage = f"{100 * coverage_from_radius(float(ranking.radii[i]), dimensions):.6g} %"
        numbers = f"{ranking.overlaps[i]:>7.4f}  {ranking.errors[i]:>7.4f}  {coverage:>8}"
        lines.append(f"{i + 1:>4}  {name:<{width}}  {numbers}")
    if shown < len(ranking):
        lines.append(f"and {len(ranking) - shown} more")
    return "\n".join(lines)


def frame_of_sets(ranking: Overlaps, classes: Sequence[str], dimensions: int) -> DataFrame:
    """Return ranked sets as a pandas DataFrame, best first."""
    with optional_package("pandas", "frames"):
        from pandas import DataFrame
    names = [braces(classes[c] for c in focal) for focal in ranking.sets]
    coverages = [coverage_from_radius(r, dimensions) for r in ranking.radii.tolist()]
    columns = {"set": names, "size": [len(focal) for focal in ranking.sets]}
    return DataFrame({**columns, "overlap": ranking.overlaps, "error": ranking.errors, "coverage": coverages})


def _classes(names: Sequence[str]) -> str:
    return f"class{'es' * (len(names) > 1)} {listed(names, 5)}"


def clusters_of(budgeter: Budgeter) -> dict[str, Any] | None:
    """Return the ellipsoids and a sample of points per class for JSON; None unless in three dimensions."""
    ellipsoids, names = budgeter.ellipsoids_, budgeter.classes_
    if budgeter.gaussians_.dimensions != 3 or len(names) > _MAX_DRAWN:
        return None
    sample = stratified_sample(budgeter.labels_, _POINTS_DRAWN * len(names))
    embedding, labels = budgeter.embedding_[sample], budgeter.labels_[sample]
    regions = zip(ellipsoids.centres, ellipsoids.axes, ellipsoids.class_of, strict=True)
    return {
        "classes": list(names),
        "radius": round(float(ellipsoids.radius), 5),
        "ellipsoids": [
            {"centre": _rounded(centre), "axes": [_rounded(row) for row in axes], "of": int(owner)}
            for centre, axes, owner in regions
        ],
        "points": [[*_rounded(point), int(label)] for point, label in zip(embedding, labels, strict=True)],
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
