"""Best-first search for the sets of classes with the largest intersection over union."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randomset.budgeting.gaussians import Floats
from randomset.budgeting.patterns import Patterns

__all__ = ["Focal", "RankedSets", "best_sets"]

Focal = tuple[int, ...]

_WAIT = 1 - 2.0**-36


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
        """Return the best of them."""
        return RankedSets(self.sets[:count], self.overlaps[:count], self.replicates[:count])

    def without(self, known: Collection[Focal]) -> RankedSets:
        """Return those that are not among some known sets."""
        skip = set(known)
        keep = [i for i, focal in enumerate(self.sets) if focal not in skip]
        return RankedSets([self.sets[i] for i in keep], self.overlaps[keep], self.replicates[keep])

    @property
    def errors(self) -> Floats:
        """The standard error of each overlap, from the spread of the replicates."""
        count = self.replicates.shape[1]
        return self.replicates.std(1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(len(self))


def best_sets(patterns: Patterns, count: int) -> RankedSets:
    """Return the `count` sets of largest overlap, exactly; fewer if fewer overlap at all.

    Adding a class shrinks the intersection and grows the union, so no set overlaps more than its parts.
    Sets are therefore visited from the best downwards, each reached once, from itself without its last
    class; those that come first are the best of all 2^N. Equal overlaps go by size, then by class
    order, so that the result is downward closed. Until a set is weighed, the least overlap among its parent
    and its pairs bounds it from above.

    >>> import numpy as np
    >>> # 3 units of space in {0} alone, 1 in {0, 1}, 2 in {0, 1, 2}, 4 in {2}
    >>> sets = np.array([0, 0, 1, 0, 1, 2, 2])
    >>> patterns = Patterns(np.array([0, 1, 3, 6, 7]), sets, np.array([[3.0], [1.0], [2.0], [4.0]]), 3)
    >>> best = best_sets(patterns, 10)
    >>> dict(zip(best.sets, best.overlaps.tolist()))
    {(0, 1): 0.5, (1, 2): 0.2857142857142857, (0, 2): 0.2, (0, 1, 2): 0.2}
    """
    weigher = _Weigher(patterns)
    pairs = weigher.pairs(count)
    # An entry of the queue: minus the rounded overlap, or a bound on it until the set is weighed; size; set;
    # the patterns that hold all its classes, or all but the last until it is weighed; its overlap if weighed.
    queue: list[tuple[float, int, Focal, NDArray[np.int64], float | None]] = [
        (-overlap, 2, pair, patterns.of_class[pair[0]], None) for pair, overlap in pairs.items()
    ]
    heapq.heapify(queue)
    least = min(pairs.values()) if 0 < len(pairs) == count else 0.0  # nothing below the last pair is chosen
    partners = _partners(pairs)
    seen: set[Focal] = set()
    chosen: list[Focal] = []
    overlaps: list[float] = []
    replicates: list[Floats] = []
    while queue and len(chosen) < count:
        key, size, focal, holders, overlap = heapq.heappop(queue)
        if overlap is None:
            holders = weigher.holding(holders, focal[-1])
            overlap = weigher.overlap(focal, holders)
            if overlap > 0 and least <= _rounded(overlap):
                heapq.heappush(queue, (-float(_rounded(overlap)), size, focal, holders, overlap))
            continue
        if size > 2 and not all(part in seen for part in itertools.combinations(focal, size - 1)):
            # rounding put it before one of its parts, which is as good up to rounding: it waits for that
            heapq.heappush(queue, (key * _WAIT, size, focal, holders, overlap))
            continue
        seen.add(focal)
        chosen.append(focal)
        overlaps.append(overlap)
        replicates.append(weigher.replicates(focal, holders))
        for c in set.intersection(*(partners.get(a, set()) for a in focal)):
            limit = min(-key, *(pairs[a, c] for a in focal))
            heapq.heappush(queue, (-limit, size + 1, (*focal, c), holders, None))
    rows = np.stack(replicates) if replicates else np.zeros((0, patterns.weights.shape[1]))
    return RankedSets(chosen, np.array(overlaps), rows)


def _partners(pairs: dict[tuple[int, int], float]) -> dict[int, set[int]]:
    """For each class, the later classes that it makes a good pair with: no other can extend a set."""
    partners: dict[int, set[int]] = {}
    for one, two in pairs:
        partners.setdefault(one, set()).add(two)
    return partners


def _rounded(overlap: Any) -> Any:
    """Keep 36 bits, so that overlaps that differ only by the order of their sums are equal."""
    mantissa, exponent = np.frexp(overlap)
    return np.ldexp(np.rint(mantissa * 2.0**36), exponent - 36)


class _Weigher:
    """Volumes of sets of classes from patterns, with room to work that is allotted once."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        self._seen = np.zeros(len(patterns), np.int64)
        self._visit = 0

    def pairs(self, count: int) -> dict[tuple[int, int], float]:
        """Return the rounded overlaps of the best pairs, and of no more than can be among the best sets."""
        shared = self.patterns.pair_intersections()
        own = shared.diagonal()
        one, two = np.nonzero(np.triu(shared, 1))
        both = shared[one, two]
        overlap = _rounded(both / (own[one] + own[two] - both))
        best = np.lexsort((two, one, -overlap))[:count]
        names = zip(one[best].tolist(), two[best].tolist(), strict=True)
        return dict(zip(names, overlap[best].tolist(), strict=True))

    def holding(self, patterns: NDArray[np.int64], c: int) -> NDArray[np.int64]:
        """Return those of some patterns that hold a class."""
        self._visit += 1
        self._seen[self.patterns.of_class[c]] = self._visit
        return patterns[self._seen[patterns] == self._visit]

    def touching(self, focal: Focal) -> NDArray[np.int64]:
        """Return the patterns that hold at least one class of a set."""
        self._visit += 1
        parts = []
        for c in focal:
            mine = self.patterns.of_class[c]
            fresh = mine[self._seen[mine] != self._visit]
            self._seen[fresh] = self._visit
            parts.append(fresh)
        return np.concatenate(parts)

    def overlap(self, focal: Focal, holders: NDArray[np.int64]) -> float:
        """Return |∩ A_c| / |∪ A_c|, the patterns that hold all of A given."""
        weight = self.patterns.total
        return float(weight[holders].sum() / weight[self.touching(focal)].sum())

    def replicates(self, focal: Focal, holders: NDArray[np.int64]) -> Floats:
        """Return the overlap in each replicate."""
        union = self._sum(self.touching(focal))
        return self._sum(holders) / np.maximum(union, np.finfo(float).tiny)

    def _sum(self, patterns: NDArray[np.int64]) -> Floats:
        """Add up the rows of weights; a product with ones is several times faster than `sum`."""
        return np.ones(len(patterns)) @ self.patterns.weights.take(patterns, 0)
