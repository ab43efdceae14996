"""Compare belief arithmetic with other libraries: transforms, pignistic probability, Dempster's rule.

Every library gets the same masses in its preferred format, prepared before timing, and all results must agree
to 1e-6. Libraries that take one belief function at a time are called in a loop for about a second, and their
time is scaled to the batch. Results are times relative to `randomset`; above one, the library is slower.

Run: make libraries, or python -m benchmarks.libraries_belief
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.families import neighbouring_sets, process_seconds
from randomset import Budget, belief_from_mass, commonality_from_mass, plausibility_from_mass
from randomset.belief.fusion import dempster
from randomset.belief.measures import pignistic_from_mass

OPERATIONS = ("belief", "plausibility", "commonality", "pignistic", "Dempster")
LIBRARIES = ("randomset", "torchbelief", "evtools-dst", "py_dempster_shafer")


@dataclass(frozen=True)
class Batched:
    """An operation on a batch of belief functions."""

    run: Callable[[], Tensor]
    read: Callable[[Tensor], Tensor] = lambda found: found


@dataclass(frozen=True)
class Single:
    """An operation on one belief function; `read` returns its values in the budget's order."""

    run: Callable[[int], Any]
    read: Callable[[Any], Any]


Work = dict[str, Batched | Single | str]
"""The operations of a library, or the reason why it lacks one."""


def random_masses(count: int, budget: Budget, seed: int) -> Tensor:
    """Draw masses that sum to one (count × |budget|), in double precision."""
    mass = torch.rand(count, len(budget), dtype=torch.double, generator=torch.Generator().manual_seed(seed))
    return mass / mass.sum(-1, keepdim=True)


def ours(one: Tensor, two: Tensor, budget: Budget) -> dict[str, Callable[[], Tensor]]:
    """`randomset`: batches over any budget."""
    return {
        "belief": lambda: belief_from_mass(one, budget),
        "plausibility": lambda: plausibility_from_mass(one, budget),
        "commonality": lambda: commonality_from_mass(one, budget),
        "pignistic": lambda: pignistic_from_mass(one, budget),
        "Dempster": lambda: dempster([one, two], [budget, budget]).mass,
    }


def torchbelief(one: Tensor, two: Tensor, budget: Budget) -> Work:
    """Batches over the power set of at most 16 classes, sets as bit masks; sparse masses up to 62."""
    import torchbelief as library

    if budget.num_classes > 62:
        return dict.fromkeys(OPERATIONS, "cannot: at most 62 classes")
    frame, place = library.Frame(budget.num_classes), codes(budget)
    first, second = dense(one, budget), dense(two, budget)
    return {
        "belief": Batched(lambda: library.belief(first, frame), lambda found: found[:, place]),
        "plausibility": Batched(lambda: library.plausibility(first, frame), lambda found: found[:, place]),
        "commonality": Batched(lambda: library.commonality(first, frame), lambda found: found[:, place]),
        "pignistic": Batched(lambda: library.pignistic(first, frame)),
        "Dempster": Batched(lambda: library.dempster(first, second, frame)[0], lambda found: found[:, place]),
    }


def evtools(one: Tensor, two: Tensor, budget: Budget) -> Work:
    """One belief function over the power set; Dempster's rule also over a dictionary of sets."""
    from evtools.combinations import dempster as combine
    from evtools.conversions import betp, mtobel, mtopl, mtoq
    from evtools.dsvector import DSVector

    names = [str(c) for c in range(budget.num_classes)]
    sets = [frozenset(names[c] for c in members) for members in budget.sets]

    def vector(mass: Tensor) -> Any:
        return DSVector.from_sparse(names, dict(zip(sets, mass.tolist(), strict=True)))

    pairs = [(vector(a), vector(b)) for a, b in zip(one[:50], two[:50], strict=True)]

    def of_sets(found: Any) -> list[float]:
        return [found.sparse.get(members, 0.0) for members in sets]

    if budget.num_classes > 16:
        cannot: Work = dict.fromkeys(OPERATIONS, f"cannot: 2^{budget.num_classes}")
        return cannot | {"Dempster": Single(lambda i: combine(*pairs[i % len(pairs)]), of_sets)}
    place, arrays = codes(budget), dense(one, budget).numpy()
    transforms = {"belief": mtobel, "plausibility": mtopl, "commonality": mtoq}

    def transformed(transform: Callable[[Any], Any]) -> Single:
        return Single(lambda i: transform(arrays[i]), lambda found: found[place])

    work: Work = {name: transformed(transform) for name, transform in transforms.items()}
    work["pignistic"] = Single(lambda i: betp(arrays[i]), lambda found: found)
    work["Dempster"] = Single(lambda i: combine(*pairs[i % len(pairs)], method="dense"), of_sets)
    return work


def py_dempster_shafer(one: Tensor, two: Tensor, budget: Budget) -> Work:
    """One belief function as a dictionary of sets, queried for every set of the budget."""
    from pyds import MassFunction

    sets = [frozenset(members) for members in budget.sets]
    first, second = (
        [MassFunction(dict(zip(sets, mass.tolist(), strict=True))) for mass in masses[:50]]
        for masses in (one, two)
    )

    def query(name: str) -> Single:
        def run(i: int) -> list[float]:
            function = getattr(first[i % len(first)], name)
            return [function(members) for members in sets]

        return Single(run, lambda found: found)

    return {
        "belief": query("bel"),
        "plausibility": query("pl"),
        "commonality": query("q"),
        "pignistic": Single(
            lambda i: first[i % len(first)].pignistic(),
            lambda found: [found[frozenset([c])] for c in range(budget.num_classes)],
        ),
        "Dempster": Single(
            lambda i: first[i % len(first)].combine_conjunctive(second[i % len(second)]),
            lambda found: [found[members] for members in sets],
        ),
    }


BACKENDS: dict[str, Callable[[Tensor, Tensor, Budget], Work]] = {
    "torchbelief": torchbelief,
    "evtools-dst": evtools,
    "py_dempster_shafer": py_dempster_shafer,
}


def codes(budget: Budget) -> Tensor:
    """Return each set as a bit mask of its members."""
    return torch.tensor([sum(1 << c for c in members) for members in budget.sets])


def dense(mass: Tensor, budget: Budget) -> Tensor:
    """Expand masses to the power set (… × 2^N), with the empty set first."""
    every = mass.new_zeros(len(mass), 2**budget.num_classes)
    every[:, codes(budget)] = mass
    return every


def compared(base: Callable[[], Tensor], work: Batched | Single, count: int, patience: float) -> float:
    """Check that a library agrees with `base`, and return its time for `count` functions relative to it."""
    expected = base()
    if isinstance(work, Batched):
        np.testing.assert_allclose(work.read(work.run()), expected, atol=1e-6)
        own, other = process_seconds(base, work.run, rounds=4)
        return other / own
    start = time.process_time()
    np.testing.assert_allclose(work.read(work.run(0)), expected[0], atol=1e-6)
    part = max(1, min(count, int(patience / (time.process_time() - start))))

    def loop() -> None:
        for i in range(part):
            work.run(i)

    (own,) = process_seconds(base, rounds=4)
    (other,) = process_seconds(loop, rounds=1)
    return other * count / part / own


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000, help="number of belief functions")
    parser.add_argument("--patience", type=float, default=1.0, help="seconds per loop")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    families = [(f"all sets of {n}", Budget.powerset(n), arguments.count) for n in (8, 10, 12)]
    for n, k, count in ((100, 200, arguments.count), (1000, 3000, arguments.count // 10)):
        families.append((f"N = {n}, K = {k}", neighbouring_sets(n, k).with_universal_set(), count))
    print(", ".join(f"{name} {version(name)}" for name in LIBRARIES) + "; one thread, float64\n")
    print("| sets | operation | functions | randomset, ms | " + " | ".join(BACKENDS) + " |")
    print("|---" * (4 + len(BACKENDS)) + "|")
    for name, budget, count in families:
        one, two = random_masses(count, budget, 0), random_masses(count, budget, 1)
        own = ours(one, two, budget)
        works = {name: build(one, two, budget) for name, build in BACKENDS.items()}
        for operation in OPERATIONS:
            (fastest,) = process_seconds(own[operation], rounds=4)
            cells = []
            for work in (each[operation] for each in works.values()):
                if isinstance(work, str):
                    cells.append(work)
                else:
                    ratio = compared(own[operation], work, count, arguments.patience)
                    cells.append(f"× {ratio:,.1f}" if ratio < 10 else f"× {ratio:,.0f}")
            row = [name, operation, str(count), f"{fastest * 1e3:.1f}", *cells]
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
