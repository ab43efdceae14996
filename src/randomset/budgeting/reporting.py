"""What happened while a budget was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from randomset.belief.naming import braces
from randomset.budgeting.checks import number_of_sets
from randomset.budgeting.ellipsoids import coverage_from_radius
from randomset.budgeting.overlap import Overlaps
from randomset.budgeting.reduce import stratified_sample
from randomset.errors import MissingPackageError

if TYPE_CHECKING:
    from pandas import DataFrame

    from randomset.budgeting.budgeter import Budgeter

__all__ = ["BudgetReport", "clusters_of", "frame_of_sets", "table_of_sets"]

_MOST_DRAWN = 100  # classes; more only hide each other


@dataclass(frozen=True)
class BudgetReport:
    """What was sampled, how long it took, which coverage the sets needed, and what a user should know.

    `samples` came, `used` were reduced; `points` were put into each ellipsoid; `undecided` sets lie so near
    the boundary that the points could not tell in or out; `growth` tells how many sets needed each
    Mahalanobis radius beyond the one asked for; `warnings` need attention, `seconds` has the time of each
    step.
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
        """Collect what a fit left behind; `radius` is the one that belongs to the coverage asked for."""
        gaussians, names = budgeter.gaussians_, budgeter.classes_
        count, dimensions = gaussians.count, gaussians.dimensions
        few = [names[c] for c in (gaussians.has_few_points & (count > 0)).nonzero()[0].tolist()]
        absent = [names[c] for c in (count == 0).nonzero()[0].tolist()]
        notes = []
        if few:
            notes.append(
                f"{_listed(few)}: at most {dimensions} samples in {dimensions} dimensions, too few for a "
                "covariance; the one common to all classes was used"
            )
        if absent:
            notes.append(f"{_listed(absent)}: no samples; in the budget as singletons only")
        if budgeter.num_sets != "auto" and len(chosen) < budgeter.num_sets:
            missing = f"only {len(chosen)} of {budgeter.num_sets} sets"
            if budgeter.grow and len(chosen) == number_of_sets(int((count > 0).sum())):
                notes.append(f"{missing} of classes that have samples exist")
            elif budgeter.grow:
                notes.append(f"{missing} were seen to overlap, however large the ellipsoids")
            else:
                notes.append(
                    f"{missing} overlap at coverage {budgeter.coverage:g}; grow=True enlarges the ellipsoids"
                )
        if dimensions > 10:
            notes.append(
                f"in {dimensions} dimensions almost all of a volume lies at its rim, and overlaps vanish; a "
                "reducer to few dimensions tells classes apart better"
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
        certain = "the choice among the sets that were seen is certain"
        if self.undecided:
            certain = (
                f"{self.undecided} sets too near the boundary to be certain (max_points allows more points)"
            )
        lines = [
            f"{self.used:,} of {self.samples:,} samples, {len(self.counts)} classes, "
            f"{self.dimensions} dimension{'s' if self.dimensions > 1 else ''}",
            f"{self.points:,} points in each ellipsoid; {certain}",
        ]
        if self.growth:
            steps = (f"{sets} at {self._coverage(radius)}" for radius, sets in self.growth.items())
            lines.append(f"ellipsoids grown beyond {100 * self.coverage:g} %: {', '.join(steps)}")
        if self.seconds:
            lines.append(
                "seconds: " + ", ".join(f"{step} {spent:.2f}" for step, spent in self.seconds.items())
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.warnings)])

    def _coverage(self, radius: float) -> str:
        return f"{100 * coverage_from_radius(radius, self.dimensions):.6g} % (radius {radius:.3g})"


def table_of_sets(ranking: Overlaps, classes: Sequence[str], dimensions: int, most: int | None = None) -> str:
    """Write ranked sets as a table, best first."""
    shown = len(ranking) if most is None else min(most, len(ranking))
    names = [braces((classes[c] for c in focal), shorten=8) for focal in ranking.sets[:shown]]
    width = max(map(len, ["set", *names]))
    lines = [f"{'rank':>4}  {'set':<{width}}  overlap  ± error  coverage"]
    for i, name in enumerate(names):
        coverage = f"{100 * coverage_from_radius(float(ranking.radii[i]), dimensions):.6g} %"
        lines.append(
            f"{i + 1:>4}  {name:<{width}}  {ranking.overlaps[i]:>7.4f}  {ranking.errors[i]:>7.4f}"
            f"  {coverage:>8}"
        )
    if shown < len(ranking):
        lines.append(f"and {len(ranking) - shown} more")
    return "\n".join(lines)


def frame_of_sets(ranking: Overlaps, classes: Sequence[str], dimensions: int) -> DataFrame:
    """Return ranked sets as a pandas table, best first."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise MissingPackageError("pandas", "frames") from None
    names = [braces(classes[c] for c in focal) for focal in ranking.sets]
    coverages = [coverage_from_radius(r, dimensions) for r in ranking.radii.tolist()]
    columns = {"set": names, "size": [len(focal) for focal in ranking.sets]}
    return DataFrame({**columns, "overlap": ranking.overlaps, "error": ranking.errors, "coverage": coverages})


def _listed(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ("class " if len(names) == 1 else "classes ") + ", ".join(names[:shown]) + more


def clusters_of(budgeter: Budgeter, points: int = 60) -> dict[str, Any] | None:
    """Return the ellipsoids and some points of each class as JSON can hold them; None unless in space."""
    ellipsoids, names = budgeter.ellipsoids_, budgeter.classes_
    if budgeter.gaussians_.dimensions != 3 or len(names) > _MOST_DRAWN:
        return None
    some = stratified_sample(budgeter.labels_, points * len(names))
    places, owners = budgeter.embedding_[some], budgeter.labels_[some]
    return {
        "classes": list(names),
        "radius": round(float(ellipsoids.radius), 5),
        "ellipsoids": [
            {"centre": _rounded(centre), "axes": [_rounded(row) for row in axes], "of": int(owner)}
            for centre, axes, owner in zip(
                ellipsoids.centres, ellipsoids.axes, ellipsoids.class_of, strict=True
            )
        ],
        "points": [[*_rounded(point), int(owner)] for point, owner in zip(places, owners, strict=True)],
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
