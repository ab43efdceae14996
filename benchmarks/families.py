"""Budgets, timers and a memory measurement for the benchmarks."""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from randomset import Budget


def neighbouring_sets(num_classes: int, num_sets: int, seed: int = 0) -> Budget:
    """Build a downward-closed budget like those of overlapping clusters.

    Three quarters of the draws are pairs, the rest triples and a few sets of four, among classes at most
    seven apart on a ring; every subset of a drawn set is added, until there are `num_sets`.
    """
    draw = random.Random(seed)
    sets: set[tuple[int, ...]] = set()
    while True:
        size = draw.choices((2, 3, 4), (75, 20, 5))[0]
        start = draw.randrange(num_classes)
        drawn = sorted({(start + draw.randrange(8)) % num_classes for _ in range(size)})
        for part in range(2, len(drawn) + 1):
            for members in itertools.combinations(drawn, part):
                if len(sets) == num_sets:
                    return Budget.from_sets(sets, num_classes)
                sets.add(members)


def seconds(*functions: Callable[[], object], rounds: int = 5, repeats: int = 5) -> list[tuple[float, float]]:
    """Time functions in turns, each a few times in a row; return the fastest and the median run of each.

    The fastest run is the cost of the code; the median includes other load on the machine.
    """
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, seen in zip(functions, times, strict=True):
            function()  # warm-up
            for _ in range(repeats):
                start = time.perf_counter()
                function()
                seen.append(time.perf_counter() - start)
    return [(min(seen), statistics.median(seen)) for seen in times]


def process_seconds(*functions: Callable[[], object], rounds: int = 5) -> list[float]:
    """Time functions in turns by process time; return the fastest run of each.

    For a single thread on a shared machine, since other processes do not count.
    """
    fastest = [float("inf")] * len(functions)
    for turn in range(rounds):
        for place, function in enumerate(functions):
            start = time.process_time()
            function()
            if turn or rounds == 1:  # the first round is a warm-up
                fastest[place] = min(fastest[place], time.process_time() - start)
    return fastest


def ratios(
    base: Callable[[], object],
    other: Callable[[], object],
    pairs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float, float, float, float]:
    """Time two functions in turns, and compare each call with its neighbours.

    Returns the quartiles of (time of `other` / mean time of the two calls of `base` around it), the ratio of
    the fastest calls, and the median time of `base`.
    """

    def timed(function: Callable[[], object]) -> float:
        start = clock()
        function()
        return clock() - start

    base()
    other()
    times = [timed(base)]
    others = []
    for _ in range(pairs):
        others.append(timed(other))
        times.append(timed(base))
    each = [2 * b / (a + c) for b, a, c in zip(others, times, times[1:], strict=False)]
    first, middle, last = statistics.quantiles(each, n=4)
    return first, middle, last, min(others) / min(times), statistics.median(times)


def memory_ratio(prepare: str, run: str) -> float:
    """Measure the additional peak memory of `run`, relative to its input `x`.

    Both are source code, run in a new process: `prepare` creates x, and warms up.
    """
    code = f"""
import re, torch
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
{prepare}
before = peak()
kept = {run}
print((peak() - before) / x.nbytes)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(out.stdout)
