"""One training instead of two: random-set networks beside softmax with the same number of epochs.

Each row is trained on part of the training images and measured on the rest, so settings can be chosen here:
softmax; a random-set network that starts from the plain network which chose its sets, the default; and one
trained from scratch, after a plain network with as many epochs, as in the paper. The seconds include the
choice of the sets. "Seconds to softmax" is the time after which the validation accuracy first reaches
softmax's last one, less half a point, divided by softmax's own.

Run: RANDOMSET_DATA=folder python -m benchmarks.train_once --source mnist --epochs 6
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from randomset.data import load_source
from randomset.evaluation.metrics import calibration_error, negative_log_likelihood
from randomset.training import TrainConfig, train

VARIANTS: dict[str, dict[str, Any]] = {
    "softmax": {"method": "softmax"},
    "random-set": {},
    "random-set, no likelihood in the loss": {"gamma": 0.0},
    "random-set, from scratch": {"from_scratch": True},
}


def measure(arguments: argparse.Namespace, data: Any, change: dict[str, Any], seed: int) -> dict[str, float]:
    """Train one variant with one seed; return its validation metrics and seconds."""
    config = TrainConfig(
        **{
            "backbone": arguments.backbone,
            "width": arguments.width,
            "epochs": arguments.epochs,
            "reliability": "none",
            "seed": seed,
            **change,
        }
    )
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    held, calibrating = order[: arguments.held], order[arguments.held : 2 * arguments.held]
    rows = order[2 * arguments.held :][: arguments.samples]
    started = time.perf_counter()
    result = train(
        config, data.inputs, data.labels, data.classes, rows=rows, val_rows=calibrating, progress=False
    )
    seconds = time.perf_counter() - started
    if config.method == "softmax":
        result.model.calibrate((data.inputs[calibrating], data.labels[calibrating]))
    probabilities, labels = result.model.predict(data.inputs[held]).probabilities, data.labels[held]
    phases = [result.first, result.fit] if config.from_scratch else [result.fit]
    times, accuracies = [0.0], []
    for report in phases:
        for row in report.history if report is not None else []:
            times.append(times[-1] + len(rows) / row["samples_per_second"])
            accuracies.append(row["val_accuracy"] if report is result.fit else 0.0)
    rest = seconds - times[-1]  # the choice of the sets, validation and calibration
    return {
        "accuracy": (probabilities.argmax(1) == labels).double().mean().item(),
        "nll": negative_log_likelihood(probabilities, labels),
        "ece": calibration_error(probabilities, labels),
        "seconds": seconds,
        "curve": [(when + rest, accuracy) for when, accuracy in zip(times[1:], accuracies, strict=True)],
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default="mnist")
    parser.add_argument("--backbone", default="small_cnn")
    parser.add_argument("--width", type=int)
    parser.add_argument("--samples", type=int, default=10_000, help="training samples")
    parser.add_argument(
        "--held", type=int, default=2_000, help="samples to measure on, and as many to calibrate"
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    data = load_source(arguments.source)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    for seed in range(arguments.seeds):
        for name, change in VARIANTS.items():
            found[name].append(measure(arguments, data, change, seed))
            print(
                seed,
                name,
                {key: round(found[name][-1][key], 4) for key in ("accuracy", "nll", "ece")},
                flush=True,
            )
    print(
        "\n| model | accuracy, % | NLL, nats | ECE | seconds, × softmax | seconds to softmax |\n"
        + "|---" * 6
        + "|"
    )
    for name, rows in found.items():
        cells = []
        for key, share, digits in (("accuracy", 100, 2), ("nll", 1, 4), ("ece", 1, 4)):
            values = [share * row[key] for row in rows]
            spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.{digits}f}{spread}")
        pairs = list(zip(rows, found["softmax"], strict=True))
        cells.append(f"{statistics.median(row['seconds'] / own['seconds'] for row, own in pairs):.2f}")
        reached = [(_reached(row, own), _reached(own, own)) for row, own in pairs]
        ratios = [mine / theirs for mine, theirs in reached if mine is not None and theirs is not None]
        enough = len(ratios) == len(pairs)
        cells.append(
            f"{statistics.median(ratios):.2f}" if enough else f"reached {len(ratios)} of {len(pairs)} times"
        )
        print(f"| {name} | " + " | ".join(cells) + " |")


def _reached(row: dict[str, Any], softmax: dict[str, Any]) -> float | None:
    """Return the seconds after which a validation accuracy close to softmax's last one is reached."""
    wanted = softmax["curve"][-1][1] - 0.005
    return next((when for when, accuracy in row["curve"] if accuracy >= wanted), None)


if __name__ == "__main__":
    main()
