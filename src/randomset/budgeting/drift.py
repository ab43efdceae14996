"""A test for clusters that drift."""

from __future__ import annotations

import math

import numpy as np

from randomset.budgeting.gaussians import ClassGaussians, Floats

__all__ = ["drift_p_values", "least_points", "level_of_look", "moments"]

_ALL_PRODUCTS = 6  # up to so many dimensions; beyond, the squares alone


def moments(points: Floats, centre: Floats, scale: Floats) -> Floats:
    """Return each point (n × d) and the products of its coordinates, whose means say where and how.

    Products are taken of z = (x − centre) / scale: all z_i z_j up to six dimensions, the squares beyond. A
    cluster that moves changes the mean of x; one that grows, shrinks or turns, the mean of the products.

    >>> moments(np.array([[1.0, 4.0]]), np.zeros(2), np.ones(2)).tolist()
    [[1.0, 4.0, 1.0, 4.0, 16.0]]
    """
    z = (points - centre) / scale
    if z.shape[1] > _ALL_PRODUCTS:
        return np.concatenate([points, z * z], axis=1)
    one, two = np.triu_indices(z.shape[1])
    return np.concatenate([points, z[:, one] * z[:, two]], axis=1)


def least_points(dimensions: int) -> int:
    """Return how many points of a class the test needs on either side, 8 for each dimension of the vectors.

    With fewer, skewed clusters would raise many times more false alarms than the level says.
    """
    return 8 * dimensions


def drift_p_values(reference: ClassGaussians, recent: ClassGaussians) -> Floats:
    """Test for each class whether recent points have the same mean as the reference points (N).

    Hotelling's test for two samples of p-dimensional vectors, n = n₁ + n₂ in all, with common covariance S,

    T² = n₁n₂/n · (t̄₁ − t̄₂)ᵀ S⁻¹ (t̄₁ − t̄₂),    (n − p − 1) / ((n − 2) p) · T² ~ F(p, n − p − 1).

    On `moments` it is a test of means and covariances that does not take the clusters for Gaussian: only the
    means need to be, which many points see to. A class with fewer than `least_points` on either side is not
    tested: p-value 1.

    >>> draw = np.random.default_rng(0)
    >>> def points(shift):
    ...     return ClassGaussians.from_points(draw.normal(size=(200, 2)) + shift, np.zeros(200, int), 1)
    >>> p = drift_p_values(points(0.0), points(0.0)), drift_p_values(points(0.0), points(0.5))
    >>> bool(p[0][0] > 0.05), bool(p[1][0] < 1e-4)
    (True, True)
    """
    from scipy.stats import f

    p = reference.dimensions
    p_values = np.ones(reference.num_classes)
    tested = np.minimum(reference.count, recent.count) >= least_points(p)
    if not tested.any():
        return p_values
    first, second = reference.count[tested].astype(float), recent.count[tested].astype(float)
    total = first + second
    common = (reference.scatter[tested] + recent.scatter[tested]) / (total - 2)[:, None, None]
    scale = np.sqrt(np.maximum(np.diagonal(common, axis1=1, axis2=2), np.finfo(float).tiny))
    alike = common / scale[:, :, None] / scale[:, None, :] + 1e-9 * np.eye(p)  # flat clusters stay solvable
    away = (recent.mean[tested] - reference.mean[tested]) / scale
    squared = (
        first * second / total * np.einsum("ni,ni->n", away, np.linalg.solve(alike, away[..., None])[..., 0])
    )
    p_values[tested] = f.sf(squared * (total - p - 1) / ((total - 2) * p), p, total - p - 1)
    return p_values


def level_of_look(level: float, look: int, tests: int) -> float:
    """Share a level among all tests and looks, 6 / (π² k²) of it to the k-th look: together they keep it.

    >>> sum(level_of_look(0.01, k, 10) * 10 for k in range(1, 10_000)) < 0.01
    True
    """
    return level / tests * 6 / (math.pi * look) ** 2
