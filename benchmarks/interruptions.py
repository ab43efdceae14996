"""Kill commands at random moments, repeat them, and compare their results with an uninterrupted run.

Trains, evaluates and compares on the digits, kills each command with SIGKILL several times, resumes it, and
checks that all numbers other than times are the same.

Run: python -m benchmarks.interruptions --times 50
"""

import argparse
import csv
import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.commands import started

_SMALL = ["--backbone", "mlp", "--width", "16", "--epochs", "6"]
_TIMES = {"seconds", "randomset", "folder"}
Numbers = dict[str, object]


def main() -> None:
    """Interrupt commands and report whether the results are the same."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=50, help="number of kills")
    options.add_argument("--seed", type=int, default=0, help="seed of the random moments")
    given = options.parse_args()
    draw, kills, rounds = random.Random(given.seed), 0, 0
    with TemporaryDirectory() as place:
        whole = Path(place, "whole")
        whole.mkdir()
        started(
            "--version", cwd=place, place=place
        ).join()  # starts the process that the others are forked from
        truth, lengths = {}, {}
        for name in _COMMANDS:
            begin = time.perf_counter()
            truth[name], _ = carried_out(name, whole)
            lengths[name] = time.perf_counter() - begin
            if name == "train":
                shutil.copytree(whole / "run", Path(place, "trained"))
            print(f"{name}: {lengths[name]:.1f} s without a kill", flush=True)
        while kills < given.times:
            rounds += 1
            for name in _COMMANDS:
                home = Path(place, f"{name}-{rounds}")
                home.mkdir()
                if name == "evaluate":
                    shutil.copytree(Path(place, "trained"), home / "run")
                moments = [draw.uniform(0.02, 0.8) * lengths[name] for _ in range(4)]
                found, died = carried_out(name, home, moments)
                kills += died
                wrong = differences(truth[name], found)
                print(f"{name}: killed {died} times, {wrong or 'the same numbers'}", flush=True)
                if wrong:
                    raise SystemExit(1)
    print(f"{kills} kills, {rounds} rounds of {', '.join(_COMMANDS)}: the same numbers as without kills.")


def carried_out(name: str, home: Path, moments: Sequence[float] = ()) -> tuple[Numbers, int]:
    """Run a command until it completes, killing it at the given times; return its numbers and the kills."""
    first, again, read = _COMMANDS[name]
    died = 0
    while True:
        begun = name != "train" or (home / "run" / "config.json").exists()
        words = again if died and begun else first
        with TemporaryDirectory() as place:
            process = started(*words, cwd=home, place=place)
            process.join(moments[died] if died < len(moments) else None)
            process.kill()
            process.join()
            if process.exitcode == 0:
                return read(home), died
            if process.exitcode != -signal.SIGKILL:
                said = Path(place, "err").read_text(encoding="utf-8")
                raise SystemExit(f"{' '.join(words)} ended with {process.exitcode}:\n{said}")
            died += 1


def numbers_of_run(home: Path) -> Numbers:
    """Return the results of training, without times."""
    folder = home / "run"
    with (folder / "metrics.csv").open() as file:
        rows = [{k: v for k, v in row.items() if k != "samples_per_second"} for row in csv.DictReader(file)]
    names = ("test.json", "threshold.json", "budget.json", "clusters.json", "split.json")
    return {"metrics": rows, **{name: _plain(json.loads((folder / name).read_text())) for name in names}}


def numbers_of_evaluation(home: Path) -> Numbers:
    """Return the results of an evaluation."""
    return {"evaluation": _plain(json.loads((home / "run" / "evaluation.json").read_text()))}


def numbers_of_comparison(home: Path) -> Numbers:
    """Return the values of every seed, without times."""
    values = json.loads((home / "comparison" / "comparison.json").read_text())["values"]
    return {name: each for name, each in values.items() if name not in ("one prediction, ms", "training, s")}


def _plain(value: object) -> object:
    """Leave out times and paths."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if name not in _TIMES}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def differences(truth: Numbers, found: Numbers) -> list[str]:
    """Return the names of numbers that differ."""
    return [name for name in {**truth, **found} if truth.get(name) != found.get(name)]


_EVALUATE = ["evaluate", "run", "--no-timing", "--samples", "100"]
_COMPARE = ["compare", "digits", "--methods", "rsnn,softmax,laplace-bridge", "--seeds", "1", "--no-figures"]
_COMPARE += _SMALL
_COMMANDS: dict[str, tuple[list[str], list[str], Callable[[Path], Numbers]]] = {
    "train": (
        ["train", "digits", "--out", "run", "--sets", "5", *_SMALL],
        ["train", "--out", "run", "--resume"],
        numbers_of_run,
    ),
    "evaluate": (_EVALUATE, _EVALUATE, numbers_of_evaluation),
    "compare": (_COMPARE, _COMPARE, numbers_of_comparison),
}


if __name__ == "__main__":
    main()
