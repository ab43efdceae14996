"""A statistical test for drifting clusters."""

from __future__ import annotations

import math

import numpy as np

from randomset.budgeting.gaussians import ClassGaussians, Floats

__all__ = ["drift_p_values", "least_points", "level_of_look", "moments"]

_MAX_PAIRWISE = 6  # dimensions; with more, only squares are used


def moments(points: Floats, centre: Floats, scale: Floats) -> Floats:
    """Return each point (n × d) with the products of its standardised coordinates appended.

    With z = (x − centre) / scale, the products are all z_i z_j in up to six dimensions and the squares in
    more. A cluster that moves changes the mean of x; one that grows, shrinks or rotates changes the mean of
    the products.

    >>> moments(np.array([[1.0, 4.0]]), np.zeros(2), np.ones(2)).tolist()
    [[1.0, 4.0, 1.0, 4.0, 16.0]]
    """
    z = (points - centre) / scale
    if z.shape[1] > _MAX_PAIRWISE:
        return np.concatenate([points, z * z], axis=1)
    i, j = np.triu_indices(z.shape[1])
    return np.concatenate([points, z[:, i] * z[:, j]], axis=1)


def least_points(dimensions: int) -> int:
    """Return how many points per class the test needs in each sample: 8 per dimension.

    With fewer, skewed clusters raise many times more false alarms than the nominal level.
    """
    return 8 * dimensions


def drift_p_values(reference: ClassGaussians, recent: ClassGaussians) -> Floats:
    """Test for each class whether recent points have the same mean as the reference points (N).

    Hotelling's two-sample test for p-dimensional vectors, n = n₁ + n₂ in total, with pooled covariance S:

    T² = n₁n₂/n · (t̄₁ − t̄₂)ᵀ S⁻¹ (t̄₁ − t̄₂),    (n − p − 1) / ((n − 2) p) · T² ~ F(p, n − p − 1).

    Applied to `moments`, it tests means and covariances without assuming Gaussian clusters: only the sample
    means must be approximately Gaussian. A class with fewer than `least_points` in either sample is not
    tested and gets p-value 1.

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
    pooled = (reference.scatter[tested] + recent.scatter[tested]) / (total - 2)[:, None, None]
    scale = np.sqrt(np.maximum(np.diagonal(pooled, axis1=1, axis2=2), np.finfo(float).tiny))
    # the ridge keeps the correlation matrices of degenerate clusters invertible
    correlation = pooled / scale[:, :, None] / scale[:, None, :] + 1e-9 * np.eye(p)
    delta = (recent.mean[tested] - reference.mean[tested]) / scale
    distance = np.einsum("ni,ni->n", delta, np.linalg.solve(correlation, delta[..., None])[..., 0])
    squared = first * second / total * distance
    p_values[tested] = f.sf(squared * (total - p - 1) / ((total - 2) * p), p, total - p - 1)
    return p_values


def level_of_look(level: float, look: int, tests: int) -> float:
    """Return the level of each test at the k-th look: level / tests · 6 / (π² k²), which sums to `level`.

    >>> sum(level_of_look(0.01, k, 10) * 10 for k in range(1, 10_000)) < 0.01
    True
    """
    return level / tests * 6 / (math.pi * look) ** 2
