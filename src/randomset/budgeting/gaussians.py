"""Class Gaussians in closed form, as sums that merge exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassGaussians"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassGaussians:
    """Counts, means and scatter matrices of the points of each class.

    μ_c = Σ x / n_c and S_c = Σ (x − μ_c)(x − μ_c)ᵀ are all that a Gaussian needs, and those of two
    sources give those of both together without their points:

    S = S₁ + S₂ + n₁n₂/(n₁ + n₂) (μ₁ − μ₂)(μ₁ − μ₂)ᵀ.

    Shapes: `count` (N), `mean` (N × d), `scatter` (N × d × d). A class without points has zeros.

    >>> import numpy as np
    >>> points, labels = np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1])
    >>> all_at_once = ClassGaussians.from_points(points, labels, 2)
    >>> all_at_once.mean.ravel().tolist(), all_at_once.scatter.ravel().tolist()
    ([1.0, 5.0], [2.0, 0.0])
    >>> halves = [ClassGaussians.from_points(points[i : i + 1], labels[i : i + 1], 2) for i in range(3)]
    >>> halves[0].merge(halves[1]).merge(halves[2]).scatter.ravel().tolist()
    [2.0, 0.0]
    """

    count: NDArray[np.int64]
    mean: Floats
    scatter: Floats

    @property
    def num_classes(self) -> int:
        """N."""
        return len(self.count)

    @property
    def dimensions(self) -> int:
        """The dimension d of the space."""
        return self.mean.shape[1]

    @classmethod
    def empty(cls, num_classes: int, dimensions: int) -> ClassGaussians:
        """Start without any points."""
        shape = (num_classes, dimensions)
        return cls(np.zeros(num_classes, np.int64), np.zeros(shape), np.zeros((*shape, dimensions)))

    @classmethod
    def from_points(cls, points: Floats, labels: NDArray[np.int64], num_classes: int) -> ClassGaussians:
        """Sum up points (n × d) with labels 0 to N − 1."""
        sums = cls.empty(num_classes, points.shape[1])
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(num_classes + 1))
        for c in range(num_classes):
            mine = points[order[ends[c] : ends[c + 1]]]
            if len(mine):
                sums.count[c] = len(mine)
                sums.mean[c] = mine.mean(0)
                away = mine - sums.mean[c]
                sums.scatter[c] = away.T @ away
        return sums

    def merge(self, other: ClassGaussians) -> ClassGaussians:
        """Return the sums of both sources together, exactly."""
        count = self.count + other.count
        share = (other.count / np.maximum(count, 1))[:, None]
        away = other.mean - self.mean
        between = (self.count * share[:, 0])[:, None, None] * away[:, :, None] * away[:, None, :]
        return ClassGaussians(count, self.mean + share * away, self.scatter + other.scatter + between)

    def first(self, dimensions: int) -> ClassGaussians:
        """Return the sums of the first dimensions alone."""
        return ClassGaussians(
            self.count, self.mean[:, :dimensions], self.scatter[:, :dimensions, :dimensions]
        )

    def replace(self, classes: NDArray[np.bool_], other: ClassGaussians) -> ClassGaussians:
        """Return the sums with those of some classes taken from another source."""
        return ClassGaussians(
            np.where(classes, other.count, self.count),
            np.where(classes[:, None], other.mean, self.mean),
            np.where(classes[:, None, None], other.scatter, self.scatter),
        )

    def only(self, classes: NDArray[np.bool_]) -> ClassGaussians:
        """Return the sums of some classes, and nothing of the others."""
        return self.replace(~classes, ClassGaussians.empty(self.num_classes, self.dimensions))

    def spread(self) -> float:
        """Return the mean variance of all points together, over the directions: the scale of the space."""
        total = self.count.sum()
        centre = self.count @ self.mean / total
        between = self.count @ np.square(self.mean - centre).sum(1)
        within = np.trace(self.scatter, axis1=1, axis2=2).sum()
        return float((within + between) / (total * self.dimensions))

    def covariance(self, floor: float) -> Floats:
        """Return S_c / n_c + floor · I, as a one-component Gaussian mixture has it.

        A class with at most d points has no covariance of its own: it takes that of all classes
        together (within the classes), as in linear discriminant analysis.
        """
        few = self.has_few_points
        covariance = self.scatter / np.maximum(self.count, 1)[:, None, None]
        if few.any():
            covariance[few] = self.scatter.sum(0) / max(self.count.sum(), 1)
        return covariance + floor * np.eye(self.dimensions)

    @property
    def has_few_points(self) -> NDArray[np.bool_]:
        """Which classes have too few points, at most d, for a covariance of their own."""
        return self.count <= self.dimensions
