"""Class Gaussians as statistics that merge exactly, and ellipsoids that contain most of a class."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from randomset.errors import RandomSetError

__all__ = ["ClassGaussians", "Ellipsoids", "coverage_from_radius", "radius_from_coverage"]

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


def radius_from_coverage(coverage: float, dimensions: int) -> float:
    """Return the Mahalanobis radius r that contains a share of a Gaussian: r² = χ²_d(coverage).

    >>> round(radius_from_coverage(0.95, 3) ** 2, 3)  # the paper's constant
    7.815
    """
    from scipy.stats import chi2

    if not 0 < coverage < 1:
        raise RandomSetError("coverage is out of range", got=coverage, expected="a number between 0 and 1")
    return float(np.sqrt(chi2.ppf(coverage, dimensions)))


def coverage_from_radius(radius: float, dimensions: int) -> float:
    """Return the share of a Gaussian within a Mahalanobis radius.

    >>> round(coverage_from_radius(7.815**0.5, 3), 3)
    0.95
    """
    from scipy.stats import chi2

    return float(chi2.cdf(radius**2, dimensions))


@dataclass(frozen=True)
class Ellipsoids:
    """The regions (x − μ)ᵀ Σ⁻¹ (x − μ) ≤ r² of the classes, in any dimension d.

    A class is the union of its ellipsoids: one for a Gaussian, several for a mixture. The columns of `axes`
    are the principal axes scaled to one standard deviation: x = μ + r · axes · u for u in the unit ball. They
    are sorted by length and point towards the mean of all centres, so they rotate with the data.

    Shapes: `centres` (M × d), `axes` (M × d × d), `class_of` (M), in ascending order.

    >>> import numpy as np
    >>> centres, covariances = np.array([[0.0, 0.0], [3.0, 0.0]]), np.stack([np.eye(2)] * 2)
    >>> two = Ellipsoids.from_moments(centres, covariances, [0, 1], radius=2.0)
    >>> two.contain(np.array([[1.5, 0.0], [-1.0, 0.0]])).tolist()
    [[True, True], [True, False]]
    """

    centres: Floats
    axes: Floats
    class_of: NDArray[np.int64]
    radius: float

    @classmethod
    def from_moments(
        cls, means: Floats, covariances: Floats, class_of: Sequence[int] | NDArray[np.int64], radius: float
    ) -> Ellipsoids:
        """Build from means (M × d) and covariances (M × d × d), sorted by class."""
        variances, directions = np.linalg.eigh(covariances)
        lengths = np.sqrt(np.maximum(variances, 0))
        inwards = np.einsum("md,mde->me", means.mean(0) - means, directions)
        axes = directions * np.where(inwards < 0, -1.0, 1.0)[:, None, :] * lengths[:, None, :]
        return cls(means, axes, np.asarray(class_of, np.int64), radius)

    @classmethod
    def from_gaussians(cls, gaussians: ClassGaussians, floor: float, radius: float) -> Ellipsoids:
        """Build one ellipsoid per class that has points."""
        present = np.flatnonzero(gaussians.count)
        covariances = gaussians.covariance(floor)[present]
        return cls.from_moments(gaussians.mean[present], covariances, present, radius)

    @classmethod
    def from_mixtures(
        cls,
        points: Floats,
        labels: NDArray[np.int64],
        gaussians: ClassGaussians,
        components: int,
        floor: float,
        radius: float,
        seed: int = 0,
    ) -> Ellipsoids:
        """Fit a Gaussian mixture to the points of each class.

        Each component requires 5(d + 1) distinct points; classes with fewer points get fewer components.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        means, covariances, owners = [], [], []
        single = gaussians.covariance(floor)
        for c in np.flatnonzero(gaussians.count).tolist():
            members = points[labels == c]
            count = min(components, len(np.unique(members, axis=0)) // (5 * (gaussians.dimensions + 1)))
            if count < 2:
                means.append(gaussians.mean[c : c + 1])
                covariances.append(single[c : c + 1])
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # a rough fit is enough
                    mixture = GaussianMixture(count, reg_covar=floor, random_state=seed).fit(members)
                kept = mixture.weights_ * len(members) > gaussians.dimensions
                means.append(mixture.means_[kept])
                covariances.append(mixture.covariances_[kept])
            owners += [c] * len(means[-1])
        return cls.from_moments(np.concatenate(means), np.concatenate(covariances), owners, radius)

    def __len__(self) -> int:
        """Return M, the number of ellipsoids."""
        return len(self.centres)

    @property
    def dimensions(self) -> int:
        """The dimension d of the space."""
        return self.centres.shape[1]

    def with_radius(self, radius: float) -> Ellipsoids:
        """Return a copy with another Mahalanobis radius."""
        return replace(self, radius=radius)

    @cached_property
    def whitening(self) -> Floats:
        """The inverse of `axes`: maps each ellipsoid to the ball of radius r (M × d × d)."""
        return np.linalg.inv(self.axes).astype(np.float64, copy=False)

    @cached_property
    def relative_volumes(self) -> Floats:
        """The volumes relative to the largest (M)."""
        logs = np.log(np.linalg.norm(self.axes, axis=1)).sum(1)  # the axes are orthogonal
        return np.exp(np.maximum(logs - logs.max(), -600))  # clamped to stay above zero

    @cached_property
    def half_widths(self) -> Floats:
        """Half the side lengths of each bounding box (M × d)."""
        return self.radius * np.sqrt(np.square(self.axes).sum(2))

    def contain(self, points: Floats) -> NDArray[np.bool_]:
        """Return whether each point (n × d) lies in each ellipsoid (n × M)."""
        white = np.einsum("nmd,med->nme", points[:, None, :] - self.centres, self.whitening)
        return np.square(white).sum(-1) <= self.radius**2
