"""Best-first search for the sets of classes with the largest intersection over union.

Volumes of unions and intersections of class regions are estimated by quasi-Monte Carlo.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randomset.budgeting.gaussians import Ellipsoids, Floats

__all__ = [
    "REPLICATES",
    "Focal",
    "Patterns",
    "RankedSets",
    "best_sets",
    "patterns_from_ellipsoids",
    "unit_ball",
]

Focal = tuple[int, ...]

_DELAY = 1 - 2.0**-36


@dataclass(frozen=True)
class RankedSets:
    """Sets of two or more classes, best first, with overlap(A) = |∩ A_c| / |∪ A_c| in each replicate.

    Shapes: `overlaps` (K), `replicates` (K × R).
    """

    sets: list[Focal]
    overlaps: Floats
    replicates: Floats

    def __len__(self) -> int:
        """Return the number of sets."""
        return len(self.sets)

    def first(self, count: int) -> RankedSets:
        """Return the best `count` sets."""
        return RankedSets(self.sets[:count], self.overlaps[:count], self.replicates[:count])

    def without(self, known: Collection[Focal]) -> RankedSets:
        """Return the sets that are not in `known`."""
        skip = set(known)
        keep = [i for i, focal in enumerate(self.sets) if focal not in skip]
        return RankedSets([self.sets[i] for i in keep], self.overlaps[keep], self.replicates[keep])

    @property
    def errors(self) -> Floats:
        """The standard error of each overlap, from the spread of the replicates."""
        count = self.replicates.shape[1]
        return self.replicates.std(1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(len(self))


def best_sets(patterns: Patterns, count: int) -> RankedSets:
    """Return the exact `count` sets of largest overlap, or fewer if fewer overlap at all.

    Adding a class shrinks the intersection and grows the union, so no set overlaps more than its subsets.
    A best-first search that reaches each set once, from the set without its last class, therefore visits the
    best of all 2^N sets first. Ties are broken by size, then by class order, which makes the result downward
    closed. Until the overlap of a set is computed, the smallest overlap of its parent and its pairs is an
    upper bound.

    >>> import numpy as np
    >>> # 3 units of space in {0} alone, 1 in {0, 1}, 2 in {0, 1, 2}, 4 in {2}
    >>> sets = np.array([0, 0, 1, 0, 1, 2, 2])
    >>> patterns = Patterns(np.array([0, 1, 3, 6, 7]), sets, np.array([[3.0], [1.0], [2.0], [4.0]]), 3)
    >>> best = best_sets(patterns, 10)
    >>> dict(zip(best.sets, best.overlaps.tolist()))
    {(0, 1): 0.5, (1, 2): 0.2857142857142857, (0, 2): 0.2, (0, 1, 2): 0.2}
    """
    volumes = _Volumes(patterns)
    pairs = volumes.pairs(count)
    # Queue entries: minus the rounded overlap (or its upper bound); size; set; the patterns that contain all
    # its classes (or all but the last); the overlap, or None while only the bound is known.
    queue: list[tuple[float, int, Focal, NDArray[np.int64], float | None]] = [
        (-overlap, 2, pair, patterns.of_class[pair[0]], None) for pair, overlap in pairs.items()
    ]
    heapq.heapify(queue)
    least = min(pairs.values()) if 0 < len(pairs) == count else 0.0  # smaller overlaps are never chosen
    partners: defaultdict[int, set[int]] = defaultdict(set)  # of each class, the later ones in its pairs
    for first, second in pairs:
        partners[first].add(second)
    seen: set[Focal] = set()
    chosen: list[Focal] = []
    overlaps: list[float] = []
    replicates: list[Floats] = []
    while queue and len(chosen) < count:
        key, size, focal, holders, overlap = heapq.heappop(queue)
        if overlap is None:
            holders = volumes.holding(holders, focal[-1])
            overlap = volumes.overlap(focal, holders)
            if overlap > 0 and least <= _rounded(overlap):
                heapq.heappush(queue, (-float(_rounded(overlap)), size, focal, holders, overlap))
            continue
        if size > 2 and not all(part in seen for part in itertools.combinations(focal, size - 1)):
            # Rounding placed it before one of its subsets: revisit it after that subset.
            heapq.heappush(queue, (key * _DELAY, size, focal, holders, overlap))
            continue
        seen.add(focal)
        chosen.append(focal)
        overlaps.append(overlap)
        replicates.append(volumes.replicates(focal, holders))
        for c in set.intersection(*(partners[a] for a in focal)):
            bound = min(-key, *(pairs[a, c] for a in focal))
            heapq.heappush(queue, (-bound, size + 1, (*focal, c), holders, None))
    rows = np.stack(replicates) if replicates else np.zeros((0, patterns.weights.shape[1]))
    return RankedSets(chosen, np.array(overlaps), rows)


def _rounded(overlap: Any) -> Any:
    """Round to 36 bits, so that overlaps that differ only in summation order are equal."""
    mantissa, exponent = np.frexp(overlap)
    return np.ldexp(np.rint(mantissa * 2.0**36), exponent - 36)


class _Volumes:
    """Overlaps of sets of classes, computed from patterns with preallocated buffers."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        self._seen = np.zeros(len(patterns), np.int64)
        self._visit = 0

    def pairs(self, count: int) -> dict[tuple[int, int], float]:
        """Return the rounded overlaps of the best `count` pairs."""
        shared = self.patterns.pair_intersections()
        own = shared.diagonal()
        i, j = np.nonzero(np.triu(shared, 1))
        both = shared[i, j]
        overlap = _rounded(both / (own[i] + own[j] - both))
        best = np.lexsort((j, i, -overlap))[:count]
        pairs = zip(i[best].tolist(), j[best].tolist(), strict=True)
        return dict(zip(pairs, overlap[best].tolist(), strict=True))

    def holding(self, patterns: NDArray[np.int64], c: int) -> NDArray[np.int64]:
        """Return the given patterns that contain class c."""
        self._visit += 1
        self._seen[self.patterns.of_class[c]] = self._visit
        return patterns[self._seen[patterns] == self._visit]

    def touching(self, focal: Focal) -> NDArray[np.int64]:
        """Return the patterns that contain at least one class of a set."""
        self._visit += 1
        parts = []
        for c in focal:
            candidates = self.patterns.of_class[c]
            parts.append(candidates[self._seen[candidates] != self._visit])
            self._seen[candidates] = self._visit
        return np.concatenate(parts)

    def overlap(self, focal: Focal, holders: NDArray[np.int64]) -> float:
        """Return |∩ A_c| / |∪ A_c|, given the patterns that contain all of A."""
        weight = self.patterns.total
        return float(weight[holders].sum() / weight[self.touching(focal)].sum())

    def replicates(self, focal: Focal, holders: NDArray[np.int64]) -> Floats:
        """Return the overlap in each replicate."""
        union = self._sum(self.touching(focal))
        return self._sum(holders) / np.maximum(union, np.finfo(float).tiny)

    def _sum(self, patterns: NDArray[np.int64]) -> Floats:
        """Sum rows of weights; a product with ones is several times faster than `sum`."""
        return np.ones(len(patterns)) @ self.patterns.weights.take(patterns, 0)


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
