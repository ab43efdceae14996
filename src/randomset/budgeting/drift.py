"""A test for clusters that drift."""

from __future__ import annotations

import math

import numpy as np

from randomset.budgeting.gaussians import ClassGaussians, Floats

__all__ = ["drift_p_values", "level_of_look"]


def drift_p_values(reference: ClassGaussians, recent: ClassGaussians) -> Floats:
    """Test for each class whether recent points come from the Gaussian of the reference points (N).

    The likelihood ratio of one Gaussian for both against one for each, with n = n₁ + n₂ and
    maximum-likelihood covariances,

    −2 ln Λ = n ln|Σ| − n₁ ln|Σ₁| − n₂ ln|Σ₂|,

    times Box's factor for small samples, is about χ² with d(d + 3)/2 degrees of freedom. It sees a cluster
    that moves, grows, shrinks or turns. A class with fewer than 2(d + 1) points on either side is not tested:
    p = 1.

    >>> draw = np.random.default_rng(0)
    >>> def points(shift):
    ...     return ClassGaussians.from_points(draw.normal(size=(200, 2)) + shift, np.zeros(200, int), 1)
    >>> p = drift_p_values(points(0.0), points(0.0)), drift_p_values(points(0.0), points(0.5))
    >>> bool(p[0][0] > 0.05), bool(p[1][0] < 1e-4)
    (True, True)
    """
    from scipy.stats import chi2

    d = reference.dimensions
    first, second = reference.count.astype(float), recent.count.astype(float)
    tested = np.minimum(first, second) >= 2 * (d + 1)
    p_values = np.ones(len(first))
    if not tested.any():
        return p_values
    both = reference.merge(recent)
    first, second = first[tested], second[tested]
    total = first + second
    spread = both.spread() * 1e-12 * np.eye(d)  # keeps the determinant of a flat cluster above zero

    def logs(gaussians: ClassGaussians) -> Floats:
        covariance = gaussians.scatter[tested] / gaussians.count[tested][:, None, None] + spread
        return np.linalg.slogdet(covariance)[1]

    statistic = total * logs(both) - first * logs(reference) - second * logs(recent)
    few = (total / first + total / second - 1) / total
    factor = 1 - few * (2 * d**2 + 9 * d + 11) / (6 * (d + 3))
    p_values[tested] = chi2.sf(np.maximum(factor * statistic, 0), d * (d + 3) / 2)
    return p_values


def level_of_look(level: float, look: int, tests: int) -> float:
    """Share a level among all tests and looks, 6 / (π² k²) of it to the k-th look: together they keep it.

    >>> sum(level_of_look(0.01, k, 10) * 10 for k in range(1, 10_000)) < 0.01
    True
    """
    return level / tests * 6 / (math.pi * look) ** 2
