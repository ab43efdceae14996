"""Slow, literal definitions over sets of classes. Nothing here uses the library's own operators.

A mass function is a dictionary from frozensets of class indices to numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from randomset import Budget

Mass = dict[frozenset[int], float]


def mass_function(mass: Tensor, budget: Budget) -> Mass:
    """One sample's masses as a dictionary."""
    return {frozenset(s): float(m) for s, m in zip(budget.sets, mass.tolist(), strict=True)}


def all_sets(n: int) -> Iterator[frozenset[int]]:
    """Every non-empty set of n classes."""
    for size in range(1, n + 1):
        yield from map(frozenset, itertools.combinations(range(n), size))


def belief(m: Mass, a: frozenset[int]) -> float:
    return sum(value for b, value in m.items() if b <= a)


def plausibility(m: Mass, a: frozenset[int]) -> float:
    return sum(value for b, value in m.items() if b & a)


def commonality(m: Mass, a: frozenset[int]) -> float:
    return sum(value for b, value in m.items() if b >= a)


def pignistic(m: Mass, n: int) -> list[float]:
    return [sum(v / len(b) for b, v in m.items() if c in b) for c in range(n)]


def subset_matrix(budget: Budget) -> np.ndarray:
    sets = [frozenset(s) for s in budget.sets]
    return np.array([[float(b <= a) for b in sets] for a in sets])


def alternating_sum(budget: Budget, bel: list[float]) -> list[float]:
    """Equation 2, right, over the budget's sets."""
    sets = [frozenset(s) for s in budget.sets]
    return [
        sum((-1) ** len(a - b) * value for b, value in zip(sets, bel, strict=True) if b <= a) for a in sets
    ]


def vertices(m: Mass, n: int) -> list[list[float]]:
    """The vertex of each permutation: a class gets the sets that contain it and no preceding class."""
    result = []
    for order in itertools.permutations(range(n)):
        vertex = [0.0] * n
        for position, c in enumerate(order):
            before = set(order[:position])
            vertex[c] = sum(v for b, v in m.items() if c in b and not b & before)
        result.append(vertex)
    return result


def entropy(p: list[float], base: float = 2.0) -> float:
    return -sum(x * math.log(x, base) for x in p if x > 0)


def conjunctive(one: Mass, two: Mass) -> Mass:
    result: Mass = {}
    for a, x in one.items():
        for b, y in two.items():
            result[a & b] = result.get(a & b, 0.0) + x * y
    return result


def disjunctive(one: Mass, two: Mass) -> Mass:
    result: Mass = {}
    for a, x in one.items():
        for b, y in two.items():
            result[a | b] = result.get(a | b, 0.0) + x * y
    return result


def overlap_by_counting(inside: np.ndarray, weight: np.ndarray) -> dict[tuple[int, ...], float]:
    """Intersection over union of every set of two or more classes, from points (n × N) and their weights."""
    n = inside.shape[1]
    return {
        focal: weight[inside[:, focal].all(1)].sum() / weight[inside[:, focal].any(1)].sum()
        for size in range(2, n + 1)
        for focal in itertools.combinations(range(n), size)
    }
