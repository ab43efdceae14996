"""What happened while a budget was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from randomset.budgeting.ellipsoids import coverage_from_radius
from randomset.budgeting.gaussians import ClassGaussians
from randomset.budgeting.overlap import Overlaps

__all__ = ["BudgetReport"]


@dataclass(frozen=True)
class BudgetReport:
    """What was sampled, how long it took, which coverage the sets needed, and what a user should know.

    `samples` came, `used` were reduced; `points` were put into each ellipsoid; `undecided` sets lie so near
    the boundary that the points could not tell in or out; `growth` lists each coverage above the one asked
    for with the number of sets that it brought; `warnings` need attention, `seconds` has the time of each
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
        cls,
        gaussians: ClassGaussians,
        names: Sequence[str],
        chosen: Overlaps,
        coverage: float,
        asked_radius: float,
        wanted: int,
        samples: int,
        seconds: dict[str, float],
    ) -> BudgetReport:
        """Collect what a fit left behind."""
        count = gaussians.count
        few = [names[c] for c in (gaussians.has_few_points & (count > 0)).nonzero()[0].tolist()]
        absent = [names[c] for c in (count == 0).nonzero()[0].tolist()]
        notes = []
        if few:
            notes.append(
                f"{_listed(few)}: at most {gaussians.dimensions} samples in {gaussians.dimensions} "
                "dimensions, too few for a covariance; the one common to all classes was used"
            )
        if absent:
            notes.append(f"{_listed(absent)}: no samples; in the budget as singletons only")
        if len(chosen) < wanted:
            notes.append(
                f"only {len(chosen)} of {wanted} sets overlap at coverage {coverage:g}; grow=True enlarges "
                "the ellipsoids until enough do"
            )
        grown = [radius for radius in chosen.radii.tolist() if radius > asked_radius]
        return cls(
            samples=samples,
            used=int(count.sum()),
            dimensions=gaussians.dimensions,
            counts=dict(zip(names, count.tolist(), strict=True)),
            points=chosen.points,
            undecided=chosen.undecided,
            coverage=coverage,
            growth=dict(Counter(grown)),
            seconds=seconds,
            warnings=tuple(notes),
        )

    def __str__(self) -> str:
        certain = f"{self.undecided} sets too near the boundary to be certain"
        certain = certain if self.undecided else "the choice is certain"
        lines = [
            f"{self.used:,} of {self.samples:,} samples, {len(self.counts)} classes, "
            f"{self.dimensions} dimensions",
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


def _listed(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ("class " if len(names) == 1 else "classes ") + ", ".join(names[:shown]) + more
