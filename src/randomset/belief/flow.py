"""A small maximum flow: can the masses of the sets be shared out among their classes?"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["can_be_shared_out"]

_NOTHING = 1e-13  # amounts below this are rounding


def can_be_shared_out(
    rest: Sequence[float], sets: Sequence[tuple[int, ...]], num_classes: int, tolerance: float
) -> bool:
    """Whether each class c can take in −rest[c] from the sets that contain it, and nothing is left.

    The first `num_classes` entries of `rest` are m({c}) − P(c): what the class must still receive,
    negative. The others are the masses of the sets. Breadth-first augmenting paths, so that the number
    of steps does not depend on the capacities.

    >>> can_be_shared_out([-0.2, -0.2, 0.0, 0.4], [(0,), (1,), (2,), (0, 1)], 3, 1e-9)
    True
    >>> can_be_shared_out([-0.2, 0.0, -0.2, 0.4], [(0,), (1,), (2,), (0, 1)], 3, 1e-9)
    False
    """
    room = [-value for value in rest[:num_classes]]
    if min(room) < -tolerance:
        return False
    supply = {
        k: rest[k]
        for k in range(num_classes, len(sets))
        if rest[k] > _NOTHING and len(sets[k]) < num_classes  # Θ fits wherever there is room
    }
    given: dict[int, dict[int, float]] = {c: {} for c in range(num_classes)}  # class -> set -> amount
    left = sum(supply.values())
    for k in supply:
        while supply[k] > _NOTHING and left > tolerance:
            path = _augmenting_path(k, sets, room, given)
            if path is None:
                break
            amount = min(supply[k], room[path[-1][1]], *(given[c][b] for b, c in _returns(path)))
            for b, c in path:
                given[c][b] = given[c].get(b, 0.0) + amount
            for b, c in _returns(path):
                given[c][b] -= amount
                if given[c][b] <= _NOTHING:
                    del given[c][b]
            room[path[-1][1]] -= amount
            supply[k] -= amount
            left -= amount
    return left <= tolerance


def _augmenting_path(
    start: int,
    sets: Sequence[tuple[int, ...]],
    room: list[float],
    given: dict[int, dict[int, float]],
) -> list[tuple[int, int]] | None:
    """Return the steps (set, class) of a shortest path from a set to a class with room.

    Between two steps, the class of the first gives back what it had from the set of the second.
    """
    came: dict[int, tuple[int, int]] = {}  # class -> (set that reaches it, class before that set or −1)
    queue, seen = deque([(start, -1)]), {start}
    while queue:
        focal, previous = queue.popleft()
        for c in sets[focal]:
            if c in came:
                continue
            came[c] = (focal, previous)
            if room[c] > _NOTHING:
                path = []
                while c != -1:
                    focal, previous = came[c]
                    path.append((focal, c))
                    c = previous
                return path[::-1]
            for other in given[c]:
                if other not in seen:
                    seen.add(other)
                    queue.append((other, c))
    return None


def _returns(path: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the (set, class) pairs whose amount shrinks along a path."""
    return [(path[i + 1][0], path[i][1]) for i in range(len(path) - 1)]
