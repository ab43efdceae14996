"""A maximum flow that decides whether the masses of sets can be distributed among their classes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["can_be_distributed"]

_EPSILON = 1e-13  # smaller amounts are rounding errors


def can_be_distributed(
    difference: Sequence[float], sets: Sequence[tuple[int, ...]], num_classes: int, tolerance: float
) -> bool:
    """Return whether the masses of the sets can be distributed among their classes to fill every class.

    The first `num_classes` entries of `difference` are m({c}) − P(c), minus the capacity of class c; the
    others are the masses of the sets. Augmenting paths are found breadth-first, so the number of steps does
    not depend on the capacities.

    >>> can_be_distributed([-0.2, -0.2, 0.0, 0.4], [(0,), (1,), (2,), (0, 1)], 3, 1e-9)
    True
    >>> can_be_distributed([-0.2, 0.0, -0.2, 0.4], [(0,), (1,), (2,), (0, 1)], 3, 1e-9)
    False
    """
    capacity = [-value for value in difference[:num_classes]]
    if min(capacity) < -tolerance:
        return False
    supply = {
        k: difference[k]
        for k in range(num_classes, len(sets))
        if difference[k] > _EPSILON and len(sets[k]) < num_classes  # Θ can fill any class
    }
    flow: dict[int, dict[int, float]] = {c: {} for c in range(num_classes)}  # class -> set -> amount
    remaining = sum(supply.values())
    for k in supply:
        while supply[k] > _EPSILON and remaining > tolerance:
            path = _augmenting_path(k, sets, capacity, flow)
            if path is None:
                break
            amount = min(supply[k], capacity[path[-1][1]], *(flow[c][b] for b, c in _backward(path)))
            for b, c in path:
                flow[c][b] = flow[c].get(b, 0.0) + amount
            for b, c in _backward(path):
                flow[c][b] -= amount
                if flow[c][b] <= _EPSILON:
                    del flow[c][b]
            capacity[path[-1][1]] -= amount
            supply[k] -= amount
            remaining -= amount
    return remaining <= tolerance


def _augmenting_path(
    start: int, sets: Sequence[tuple[int, ...]], capacity: list[float], flow: dict[int, dict[int, float]]
) -> list[tuple[int, int]] | None:
    """Return the steps (set, class) of a shortest path from a set to a class with free capacity.

    Between two steps, the class of the first returns flow to the set of the second.
    """
    parent: dict[int, tuple[int, int]] = {}  # class -> (set that reaches it, class before that set or −1)
    queue, seen = deque([(start, -1)]), {start}
    while queue:
        focal, previous = queue.popleft()
        for c in sets[focal]:
            if c in parent:
                continue
            parent[c] = (focal, previous)
            if capacity[c] > _EPSILON:
                path = []
                while c != -1:
                    focal, previous = parent[c]
                    path.append((focal, c))
                    c = previous
                return path[::-1]
            for source in flow[c]:
                if source not in seen:
                    seen.add(source)
                    queue.append((source, c))
    return None


def _backward(path: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the (set, class) pairs whose flow decreases along a path."""
    return [(path[i + 1][0], path[i][1]) for i in range(len(path) - 1)]
