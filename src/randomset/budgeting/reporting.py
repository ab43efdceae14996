"""Reports and tables about the choice of a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from randomset.belief.focal_sets import braces
from randomset.budgeting.gaussians import coverage_from_radius
from randomset.budgeting.num_sets import number_of_sets
from randomset.budgeting.overlap import Overlaps
from randomset.budgeting.reduce import stratified_sample
from randomset.errors import MissingPackageError

if TYPE_CHECKING:
    from pandas import DataFrame

    from randomset.budgeting.budgeter import Budgeter

__all__ = ["BudgetReport", "clusters_of", "frame_of_sets", "table_of_sets"]

_MAX_DRAWN = 100  # classes; more would only hide each other


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
                f"{_listed(scarce)}: at most {dimensions} samples in {dimensions} dimensions, too few for a "
                "covariance; using the covariance pooled over all classes"
            )
        if absent:
            notes.append(f"{_listed(absent)}: no samples; included in the budget as singletons only")
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
    """Return the ellipsoids and a sample of points per class for JSON; None unless in three dimensions."""
    ellipsoids, names = budgeter.ellipsoids_, budgeter.classes_
    if budgeter.gaussians_.dimensions != 3 or len(names) > _MAX_DRAWN:
        return None
    sample = stratified_sample(budgeter.labels_, points * len(names))
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
