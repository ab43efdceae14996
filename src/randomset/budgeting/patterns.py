"""Volumes of unions and intersections of class regions, estimated by quasi-Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from randomset.budgeting.ellipsoids import Ellipsoids
from randomset.budgeting.gaussians import Floats

__all__ = ["REPLICATES", "Patterns", "patterns_from_ellipsoids", "unit_ball"]

REPLICATES = 8
"""Independent scrambles of the quasi-random points: their spread gives the standard error."""


def unit_ball(dimensions: int, points: int, seed: int) -> Floats:
    """Return quasi-random points in the unit ball from `REPLICATES` scrambled Sobol sequences.

    Shape: (`REPLICATES` · points) × d; `points` must be a power of two.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    seeds = np.random.SeedSequence(seed).spawn(REPLICATES)
    sides = dimensions + (dimensions > 1)
    cube = np.concatenate([qmc.Sobol(sides, rng=np.random.default_rng(s)).random(points) for s in seeds])
    if dimensions == 1:
        return 2 * cube - 1
    normal = ndtri(np.clip(cube[:, 1:], 1e-15, 1 - 1e-15))
    return normal * (cube[:, :1] ** (1 / dimensions) / np.linalg.norm(normal, axis=1, keepdims=True))


@dataclass(frozen=True)
class Patterns:
    """A measure on sets of classes: the volume covered by exactly the regions of those classes.

    The volume of an intersection is the weight of the patterns that contain all its classes; the volume of a
    union, of those that contain at least one.

    `starts` (P + 1) and `classes` list the classes of each pattern, as in CSR format; `weights`
    (P × `REPLICATES`) has one column per independent estimate.
    """

    starts: NDArray[np.int64]
    classes: NDArray[np.int64]
    weights: Floats
    num_classes: int

    def __len__(self) -> int:
        """Return P, the number of distinct patterns."""
        return len(self.starts) - 1

    @cached_property
    def total(self) -> Floats:
        """The weight of each pattern, summed over replicates (P)."""
        return self.weights.sum(1)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of classes in each pattern (P)."""
        return np.diff(self.starts)

    @cached_property
    def of_class(self) -> list[NDArray[np.int64]]:
        """The patterns that contain each class, in ascending order."""
        owner = np.repeat(np.arange(len(self)), self.sizes)
        order = np.argsort(self.classes, kind="stable")
        ends = np.searchsorted(self.classes[order], np.arange(1, self.num_classes))
        return np.split(owner[order], ends)

    def classes_of(self, patterns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the classes of the given patterns, concatenated."""
        sizes = self.sizes[patterns]
        row = np.repeat(np.arange(len(patterns)), sizes)
        shift = self.starts[patterns] - (np.cumsum(sizes) - sizes)
        return self.classes[np.arange(len(row)) + shift[row]]

    def pair_intersections(self) -> Floats:
        """Return the volume of each pair's intersection, with class volumes on the diagonal (N × N)."""
        from scipy.sparse import csr_array

        shape = (len(self), self.num_classes)
        table = csr_array((np.ones(len(self.classes)), self.classes, self.starts), shape=shape)
        if len(self.classes) < 0.05 * shape[0] * shape[1]:
            return (table.T @ (table * self.total[:, None])).toarray()
        volumes = np.zeros((self.num_classes, self.num_classes))
        for start in range(0, shape[0], 16384):  # dense blocks bound the memory
            block = table[start : start + 16384].toarray()
            volumes += block.T @ (block * self.total[start : start + 16384, None])
        return volumes


def patterns_from_ellipsoids(ellipsoids: Ellipsoids, num_classes: int, ball: Floats) -> Patterns:
    """Map the points of the unit ball into every ellipsoid and find which other ellipsoids contain them.

    A point inside ellipsoids of volumes V_j gets the weight 1 / Σ_j (n / V_j), the balance heuristic of
    multiple importance sampling: the expected weight of the points in any region is its volume. Only
    ellipsoids with intersecting bounding boxes are compared, and points with the same pattern are merged.
    """
    points = len(ball)
    replicate = np.arange(points) // (points // REPLICATES)
    class_hash = np.random.default_rng(0).integers(1, 2**64, num_classes, dtype=np.uint64)
    columns = np.ascontiguousarray(ball.T)
    density = 1 / ellipsoids.relative_volumes
    low, high = ellipsoids.centres - ellipsoids.half_widths, ellipsoids.centres + ellipsoids.half_widths
    keys, sizes, members, weights = [], [], [], []
    for i in range(len(ellipsoids)):
        near = np.flatnonzero(((low <= high[i]) & (high >= low[i])).all(1))
        rotation = ellipsoids.whitening[near] @ ellipsoids.axes[i]
        shift = ellipsoids.whitening[near] @ (ellipsoids.centres[i] - ellipsoids.centres[near])[:, :, None]
        white = (rotation.reshape(-1, len(columns)) @ columns).reshape(len(near), len(columns), points)
        white += shift / ellipsoids.radius
        inside = np.einsum("jdn,jdn->jn", white, white) <= 1
        inside[near == i] = True
        weight = 1 / (density[near] @ inside)
        owner = ellipsoids.class_of[near]
        first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        if len(first) < len(near):  # mixture: a class is the union of its ellipsoids
            inside, owner = np.logical_or.reduceat(inside, first), owner[first]
        key = (inside * class_hash[owner][:, None]).sum(0, dtype=np.uint64)
        unique, example, inverse = np.unique(key, return_index=True, return_inverse=True)
        keys.append(unique)
        row, member = np.nonzero(inside[:, example].T)
        sizes.append(np.bincount(row, minlength=len(unique)))
        members.append(owner[member])
        summed = np.bincount(inverse * REPLICATES + replicate, weight, len(unique) * REPLICATES)
        weights.append(summed.reshape(-1, REPLICATES))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    patterns = Patterns(starts, np.concatenate(members), np.concatenate(weights), num_classes)
    return _merged(patterns, np.concatenate(keys))


def _merged(patterns: Patterns, keys: NDArray[np.uint64]) -> Patterns:
    """Merge patterns with equal keys."""
    unique, example, inverse = np.unique(keys, return_index=True, return_inverse=True)
    columns = [np.bincount(inverse, column, len(unique)) for column in patterns.weights.T]
    weights = np.stack(columns, axis=1, dtype=np.float64)
    starts = np.concatenate([[0], np.cumsum(patterns.sizes[example])])
    return Patterns(starts, patterns.classes_of(example), weights / weights.max(), patterns.num_classes)
