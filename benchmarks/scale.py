"""Growth of time and memory with classes, sets, batch and data, and extrapolation to larger problems.

Every row runs in its own process, to measure its peak memory: a training step of a head on 512 features with
its loss (in turns with softmax), a prediction from logits to masses, probabilities, entropy and width, the
operators of a budget, and the choice of a budget from features. K is three times N. A straight line through
the logarithms gives the exponent of growth and extrapolates to larger sizes.

Run: python -m benchmarks.scale [--largest 21000]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time

import torch
from torch import nn

from benchmarks.families import neighbouring_sets, seconds
from benchmarks.many_classes import drawn, peak
from benchmarks.training import step
from randomset import Budget, Budgeter, RandomSet, RandomSetLoss, RandomSetNetwork

FEATURES = 512
SIZES = (10, 100, 1000, 4000, 21_000)
BATCHES = (64, 256, 1024)
# Classes, and samples of each; the last has as many samples as ImageNet.
BUDGETS = ((100, 20), (300, 20), (1000, 20), (3000, 20), (100, 200), (100, 2000), (100, 12_800))

Row = dict[str, float]


class Features(nn.Identity):
    """An identity backbone: the inputs are features."""

    num_features = FEATURES


def training(classes: int, batch: int) -> Row:
    """Time a step of the head, in turns with softmax."""
    budget = _budget(classes)
    inputs, labels = torch.randn(batch, FEATURES), torch.arange(batch) % classes
    network, plain = RandomSetNetwork(Features(), budget), nn.Linear(FEATURES, classes)
    calls = (
        step(plain, nn.CrossEntropyLoss(), inputs, labels),
        step(network.train(), RandomSetLoss(budget), inputs, labels),
    )
    (softmax, _), (ours, _) = seconds(*calls, rounds=3, repeats=3)
    return {"seconds": ours, "ratio": ours / softmax}


def prediction(classes: int, batch: int) -> Row:
    """Time a prediction from logits to masses and scores."""
    operators = RandomSetNetwork(Features(), _budget(classes)).operators
    logits = torch.randn(batch, len(operators.budget))

    def predict() -> object:
        answer = RandomSet.from_logits(logits, operators)
        return answer.mass, answer.pignistic, answer.entropy, answer.credal_width

    ((best, _),) = seconds(predict, rounds=3, repeats=3)
    return {"seconds": best}


def operators(classes: int, batch: int) -> Row:
    """Time the construction of a budget's operators."""
    budget = _budget(classes)
    start = time.perf_counter()
    RandomSetNetwork(Features(), budget)
    return {"seconds": time.perf_counter() - start}


def budgeting(classes: int, samples: int) -> Row:
    """Time the choice of sets from 64-dimensional features."""
    inputs, labels = drawn(classes, samples, 64, seed=1)
    start = time.perf_counter()
    Budgeter(3 * classes, seed=0, progress=False).fit(inputs.numpy(), labels.numpy())
    return {"seconds": time.perf_counter() - start}


MEASURES = {one.__name__: one for one in (training, prediction, operators, budgeting)}


def _budget(classes: int) -> Budget:
    return neighbouring_sets(classes, 20 if classes == 10 else 3 * classes)


def measured(what: str, classes: int, other: int) -> Row:
    """Measure in a new process, with its peak memory in GB beyond that of the imports."""
    command = [sys.executable, "-m", "benchmarks.scale", "--only", what, str(classes), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def line(sizes: list[float], values: list[float]) -> tuple[float, float]:
    """Fit log y = log a + b log x by least squares, and return a and b.

    >>> a, b = line([1, 10, 100], [2, 20, 200])
    >>> round(a, 6), round(b, 6)
    (2.0, 1.0)
    """
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    centre, height = sum(x) / len(x), sum(y) / len(y)
    b = sum((p - centre) * (q - height) for p, q in zip(x, y, strict=True))
    b /= sum((p - centre) ** 2 for p in x)
    return math.exp(height - b * centre), b


def report_growth(name: str, unit: str, sizes: list[float], rows: list[Row], wanted: float) -> None:
    """Print the growth over the three largest sizes, and its extrapolation."""
    if len(rows) < 2:
        return
    for what, label, digits in (("seconds", "time", 3), ("gigabytes", "memory", 2)):
        a, b = line(sizes[-3:], [max(row[what], 1e-6) for row in rows[-3:]])
        guess = a * wanted**b
        sign = "s" if what == "seconds" else "GB"
        print(f"  {label} of {name} ~ {unit}^{b:.2f}; at {unit} = {wanted:,.0f}: {guess:.{digits}f} {sign}")


def main() -> None:
    """Print the tables and the fits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="largest number of classes")
    parser.add_argument("--only", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        what, classes, other = arguments.only
        before = peak()
        row = MEASURES[what](int(classes), int(other))
        print(json.dumps({**row, "gigabytes": peak() - before}))
        return
    sizes = [size for size in SIZES if size <= arguments.largest]
    widths = [float(size + (20 if size == 10 else 3 * size)) for size in sizes]
    print(f"{torch.get_num_threads()} threads; batch of 256; memory beyond that of the imports")
    print(f"{'what':<12}{'classes':>9}{'outputs':>9}{'ms':>11}{'GB':>8}{'of softmax':>12}")
    for what in ("training", "prediction", "operators"):
        rows = []
        for size, width in zip(sizes, widths, strict=True):
            row = measured(what, size, 256)
            rows.append(row)
            ratio = f"{row['ratio']:.1f}" if "ratio" in row else "–"
            head = f"{what:<12}{size:>9,}{width:>9,.0f}"
            print(f"{head}{1e3 * row['seconds']:>11.1f}{row['gigabytes']:>8.2f}{ratio:>12}", flush=True)
        report_growth(what, "outputs", widths, rows, 84_000)
    print(f"\n{'what':<12}{'batch':>9}{'ms':>20}{'GB':>8}")
    for what in ("training", "prediction"):
        rows = [measured(what, 1000, batch) for batch in BATCHES]
        for batch, row in zip(BATCHES, rows, strict=True):
            print(f"{what:<12}{batch:>9,}{1e3 * row['seconds']:>20.1f}{row['gigabytes']:>8.2f}", flush=True)
        report_growth(what, "batch", list(map(float, BATCHES)), rows, 8 * 256)
    print(f"\n{'what':<12}{'classes':>9}{'samples':>9}{'s':>11}{'GB':>8}")
    found = {}
    for classes, samples in BUDGETS:
        if classes > arguments.largest:
            continue
        found[classes, samples] = row = measured("budgeting", classes, samples)
        head = f"{'budgeting':<12}{classes:>9,}{classes * samples:>9,}"
        print(f"{head}{row['seconds']:>11.2f}{row['gigabytes']:>8.2f}", flush=True)
    classes_grow = [key for key in found if key[1] == 20]
    report_growth(
        "budgeting", "classes", [float(c) for c, _ in classes_grow], [found[k] for k in classes_grow], 21_000
    )
    data_grow = [key for key in found if key[0] == 100]
    sizes_of_data = [float(c * s) for c, s in data_grow]
    report_growth("budgeting", "samples", sizes_of_data, [found[k] for k in data_grow], 1_281_167)


if __name__ == "__main__":
    main()
