"""Class Gaussians as sufficient statistics that merge exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassGaussians"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassGaussians:
    """Counts, means and scatter matrices of the points of each class.

    μ_c = Σ x / n_c and S_c = Σ (x − μ_c)(x − μ_c)ᵀ determine a Gaussian, and the statistics of two sources
    combine without their points:

    S = S₁ + S₂ + n₁n₂/(n₁ + n₂) (μ₁ − μ₂)(μ₁ − μ₂)ᵀ.

    Shapes: `count` (N), `mean` (N × d), `scatter` (N × d × d). Classes without points hold zeros.

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
        """Return statistics of zero points."""
        shape = (num_classes, dimensions)
        return cls(np.zeros(num_classes, np.int64), np.zeros(shape), np.zeros((*shape, dimensions)))

    @classmethod
    def from_points(cls, points: Floats, labels: NDArray[np.int64], num_classes: int) -> ClassGaussians:
        """Accumulate points (n × d) with labels 0 to N − 1."""
        result = cls.empty(num_classes, points.shape[1])
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(num_classes + 1))
        for c in range(num_classes):
            members = points[order[ends[c] : ends[c + 1]]]
            if len(members):
                result.count[c] = len(members)
                result.mean[c] = members.mean(0)
                centred = members - result.mean[c]
                result.scatter[c] = centred.T @ centred
        return result

    def merge(self, other: ClassGaussians) -> ClassGaussians:
        """Return the statistics of both sources combined; exact."""
        count = self.count + other.count
        share = (other.count / np.maximum(count, 1))[:, None]
        delta = other.mean - self.mean
        between = (self.count * share[:, 0])[:, None, None] * delta[:, :, None] * delta[:, None, :]
        return ClassGaussians(count, self.mean + share * delta, self.scatter + other.scatter + between)

    def first(self, dimensions: int) -> ClassGaussians:
        """Return the statistics of the first dimensions only."""
        return ClassGaussians(
            self.count, self.mean[:, :dimensions], self.scatter[:, :dimensions, :dimensions]
        )

    def replace(self, classes: NDArray[np.bool_], other: ClassGaussians) -> ClassGaussians:
        """Return a copy in which the masked classes come from another source."""
        return ClassGaussians(
            np.where(classes, other.count, self.count),
            np.where(classes[:, None], other.mean, self.mean),
            np.where(classes[:, None, None], other.scatter, self.scatter),
        )

    def only(self, classes: NDArray[np.bool_]) -> ClassGaussians:
        """Return a copy in which classes outside the mask are empty."""
        return self.replace(~classes, ClassGaussians.empty(self.num_classes, self.dimensions))

    def spread(self) -> float:
        """Return the variance of all points, averaged over dimensions: the scale of the space."""
        total = self.count.sum()
        centre = self.count @ self.mean / total
        between = self.count @ np.square(self.mean - centre).sum(1)
        within = np.trace(self.scatter, axis1=1, axis2=2).sum()
        return float((within + between) / (total * self.dimensions))

    def covariance(self, floor: float) -> Floats:
        """Return S_c / n_c + floor · I, the estimate of a one-component Gaussian mixture.

        A class with at most d points uses the pooled within-class covariance, as in linear discriminant
        analysis.
        """
        pooled = self.has_few_points
        covariance = self.scatter / np.maximum(self.count, 1)[:, None, None]
        if pooled.any():
            covariance[pooled] = self.scatter.sum(0) / max(self.count.sum(), 1)
        return covariance + floor * np.eye(self.dimensions)

    @property
    def has_few_points(self) -> NDArray[np.bool_]:
        """Whether each class has at most d points, too few to estimate a covariance (N)."""
        return self.count <= self.dimensions
