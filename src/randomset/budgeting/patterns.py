"""The volumes of unions and intersections of class regions, from quasi-random points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from randomset.budgeting.ellipsoids import Ellipsoids
from randomset.budgeting.gaussians import Floats

__all__ = ["REPLICATES", "Patterns", "patterns_from_ellipsoids", "unit_ball"]

REPLICATES = 8
"""Independent scrambles of the quasi-random points: their spread is the error of an estimate."""


def unit_ball(dimensions: int, points: int, seed: int) -> Floats:
    """Return quasi-random points that fill the unit ball: `REPLICATES` scrambled Sobol sequences in turn.

    Shape: (`REPLICATES` · points) × d; `points` is a power of two.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    sequences = np.random.SeedSequence(seed).spawn(REPLICATES)
    even = [
        qmc.Sobol(dimensions + (dimensions > 1), rng=np.random.default_rng(s)).random(points)
        for s in sequences
    ]
    cube = np.concatenate(even)
    if dimensions == 1:
        return 2 * cube - 1
    normal = ndtri(np.clip(cube[:, 1:], 1e-15, 1 - 1e-15))
    return normal * (cube[:, :1] ** (1 / dimensions) / np.linalg.norm(normal, axis=1, keepdims=True))


@dataclass(frozen=True)
class Patterns:
    """A measure on sets of classes: how much of the space lies in exactly those classes' regions.

    The volume of an intersection is the weight of the patterns that hold all its classes; of a union, of
    those that hold at least one.

    `starts` (P + 1) and `classes` list the classes of each pattern; `weights` (P × `REPLICATES`) has one
    column
    for each independent estimate.
    """

    starts: NDArray[np.int64]
    classes: NDArray[np.int64]
    weights: Floats
    num_classes: int

    def __len__(self) -> int:
        """Return P, the number of different patterns."""
        return len(self.starts) - 1

    @cached_property
    def total(self) -> Floats:
        """The weight of each pattern over all replicates (P)."""
        return self.weights.sum(1)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """How many classes each pattern holds (P)."""
        return np.diff(self.starts)

    @cached_property
    def of_class(self) -> list[NDArray[np.int64]]:
        """For each class, the patterns that hold it, in ascending order."""
        owner = np.repeat(np.arange(len(self)), self.sizes)
        order = np.argsort(self.classes, kind="stable")
        ends = np.searchsorted(self.classes[order], np.arange(1, self.num_classes))
        return np.split(owner[order], ends)

    def classes_of(self, patterns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the classes of some patterns in one list."""
        sizes = self.sizes[patterns]
        ends = np.cumsum(sizes)
        place = np.repeat(np.arange(len(patterns)), sizes)
        shift = self.starts[patterns] - (ends - sizes)
        return self.classes[np.arange(len(place)) + shift[place]]

    def pair_intersections(self) -> Floats:
        """Return the volumes of all pairs' intersections; the diagonal has the classes' own (N × N)."""
        from scipy.sparse import csr_array

        shape = (len(self), self.num_classes)
        table = csr_array((np.ones(len(self.classes)), self.classes, self.starts), shape=shape)
        if len(self.classes) < 0.05 * shape[0] * shape[1]:
            return (table.T @ (table * self.total[:, None])).toarray()
        volumes = np.zeros((self.num_classes, self.num_classes))
        for start in range(0, shape[0], 16384):  # dense multiplication, in pieces that fit the memory
            piece = table[start : start + 16384].toarray()
            volumes += piece.T @ (piece * self.total[start : start + 16384, None])
        return volumes


def patterns_from_ellipsoids(ellipsoids: Ellipsoids, num_classes: int, ball: Floats) -> Patterns:
    """Put the points of the unit ball into every ellipsoid and see in which others they lie.

    A point that j ellipsoids of volumes V_j could have drawn counts 1 / Σ_j (n / V_j): then the weights of
    the points in any part of the space add up to its volume on average (the balance heuristic of multiple
    importance sampling). Only ellipsoids whose bounding boxes meet are compared, and points of the same
    pattern are merged.
    """
    points = len(ball)
    replicate = np.arange(points) // (points // REPLICATES)
    mark = np.random.default_rng(0).integers(1, 2**64, num_classes, dtype=np.uint64)
    flat = np.ascontiguousarray(ball.T)
    density = 1 / ellipsoids.relative_volumes
    low, high = ellipsoids.centres - ellipsoids.half_widths, ellipsoids.centres + ellipsoids.half_widths
    keys, sizes, members, weights = [], [], [], []
    for i in range(len(ellipsoids)):
        near = np.flatnonzero(((low <= high[i]) & (high >= low[i])).all(1))
        turn = ellipsoids.whitening[near] @ ellipsoids.axes[i]
        shift = ellipsoids.whitening[near] @ (ellipsoids.centres[i] - ellipsoids.centres[near])[:, :, None]
        white = (turn.reshape(-1, len(flat)) @ flat).reshape(len(near), len(flat), points)
        white += shift / ellipsoids.radius
        inside = np.einsum("jdn,jdn->jn", white, white) <= 1
        inside[near == i] = True
        weight = 1 / (density[near] @ inside)
        owner = ellipsoids.class_of[near]
        first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        if len(first) < len(near):  # mixtures: a class is the union of its ellipsoids
            inside, owner = np.logical_or.reduceat(inside, first), owner[first]
        key = (inside * mark[owner][:, None]).sum(0, dtype=np.uint64)
        kinds, sample, kind = np.unique(key, return_index=True, return_inverse=True)
        keys.append(kinds)
        place, member = np.nonzero(inside[:, sample].T)
        sizes.append(np.bincount(place, minlength=len(kinds)))
        members.append(owner[member])
        summed = np.bincount(kind * REPLICATES + replicate, weight, len(kinds) * REPLICATES)
        weights.append(summed.reshape(-1, REPLICATES))
    return _merged(
        np.concatenate(keys),
        np.concatenate(sizes),
        np.concatenate(members),
        np.concatenate(weights),
        num_classes,
    )


def _merged(
    keys: NDArray[np.uint64],
    sizes: NDArray[np.int64],
    members: NDArray[np.int64],
    weights: Floats,
    num_classes: int,
) -> Patterns:
    """Merge equal patterns."""
    kinds, sample, kind = np.unique(keys, return_index=True, return_inverse=True)
    summed = np.stack(
        [np.bincount(kind, column, len(kinds)) for column in weights.T], axis=1, dtype=np.float64
    )
    starts = np.concatenate([[0], np.cumsum(sizes)])
    every = Patterns(starts, members, weights, num_classes)
    classes = every.classes_of(sample)
    return Patterns(
        np.concatenate([[0], np.cumsum(sizes[sample])]), classes, summed / summed.max(), num_classes
    )
