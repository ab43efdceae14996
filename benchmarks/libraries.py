"""Compare `randomset` with other uncertainty libraries on the same network, data and time budget.

Every method trains the same small convolutional network (the packed ensemble, an equivalent of it) with the
same loop and recipe, for the same number of epochs or seconds on one thread; one function computes all
numbers. Unknown inputs are the positive class, and scores grow with uncertainty.

Run: make libraries, or python -m benchmarks.libraries --task digits --seeds 3
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.families import process_seconds
from benchmarks.libraries_methods import METHODS, Predict, Trained
from benchmarks.libraries_training import TASKS, Experiment, Plan, Task
from randomset._core.torchvision import import_torchvision_first
from randomset.evaluation.metrics import (
    calibration_error,
    detection,
    fitted_temperature,
    negative_log_likelihood,
    tempered,
    top_accuracy,
)
from reproduction.exhibit import over_seeds

LIBRARIES = (
    "torch",
    "randomset",
    "torch-uncertainty",
    "laplace-torch",
    "pytorch-ood",
    "probly",
    "torchbelief",
)
QUALITIES: dict[str, tuple[str, float, int]] = {
    "accuracy": ("accuracy, %", 100, 2),
    "nll": ("NLL, nats", 1, 4),
    "ece": ("ECE", 1, 4),
    "tempered nll": ("NLL, one temperature", 1, 4),
    "tempered ece": ("ECE, one temperature", 1, 4),
    "seconds": ("training, s", 1, 1),
    "one": ("one image, × softmax", 1, 1),
    "many": ("100 images, × softmax", 1, 1),
}
Numbers = dict[str, Any]


@torch.no_grad()
def predictions(predict: Predict, images: Tensor, batch: int = 500) -> tuple[Tensor, dict[str, Tensor]]:
    """Predict batch by batch: probabilities (n × N) and scores (n) by name."""
    parts = [predict(part) for part in images.split(batch)]
    scores = {name: torch.cat([found[name] for _, found in parts]) for name in parts[0][1]}
    return torch.cat([p for p, _ in parts]), scores


def measured(model: Trained, task: Task) -> Numbers:
    """Measure a trained method; all numbers of the tables are computed here."""
    held_out, labels = predictions(model.predict, task.validation[0])[0], task.test[1]
    p, known = predictions(model.predict, task.test[0])
    scaled = tempered(p, fitted_temperature(held_out, task.validation[1]))
    numbers: Numbers = {
        "accuracy": top_accuracy(p, labels),
        "nll": negative_log_likelihood(p, labels),
        "ece": calibration_error(p, labels),
        "tempered nll": negative_log_likelihood(scaled, labels),
        "tempered ece": calibration_error(scaled, labels),
        "scores": {name: {} for name in known},
    }
    for unknown, images in task.unknown.items():
        _, scores = predictions(model.predict, images)
        for name, score in scores.items():
            areas = detection(known[name], score)
            numbers["scores"][name][unknown] = (areas.auroc, areas.auprc)
    return numbers


def price(base: Trained, other: Trained, images: Tensor, rounds: int) -> float:
    """Return the time of a prediction with its scores, relative to the softmax network, taking turns."""
    with torch.no_grad():
        own, others = process_seconds(
            lambda: base.predict(images), lambda: other.predict(images), rounds=rounds
        )
    return others / own


def lines(method: Callable[..., object]) -> int:
    """Count the lines of a function and its helpers in the same file, without signatures and docstrings.

    >>> from benchmarks.libraries_methods import softmax
    >>> lines(softmax)
    5
    """
    written = inspect.unwrap(method)
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(written))).body
    assert isinstance(function, ast.FunctionDef)
    body = function.body[1:] if ast.get_docstring(function) else function.body
    named = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    own = sum((part.end_lineno or part.lineno) - part.lineno + 1 for part in body)
    near = [value for name, value in vars(sys.modules[written.__module__]).items() if name in named]
    helpers = [value for value in near if inspect.isfunction(inspect.unwrap(value))]
    return own + sum(lines(one) for one in helpers if one.__module__ == written.__module__)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    written = ["| " + " | ".join(row) + " |" for row in (heads, *rows)]
    return "\n".join([written[0], "|---" * len(heads) + "|", *written[1:]])


def qualities(results: dict[str, list[Numbers]]) -> str:
    """Format one row per method: accuracy, calibration and cost."""
    rows = []
    for method, each in results.items():
        cells = [
            over_seeds([one[key] for one in each], scale, digits)
            for key, (_, scale, digits) in QUALITIES.items()
        ]
        rows.append([method, *cells, str(lines(METHODS[method]))])
    return table(["method", *(head for head, _, _ in QUALITIES.values()), "lines"], rows)


def detections(results: dict[str, list[Numbers]]) -> str:
    """Format one row per score of each method: AUROC and AUPRC in percent, unknown inputs positive."""
    first = next(iter(results.values()))[0]["scores"]
    unknown = list(next(iter(first.values())))
    rows = []
    for method, each in results.items():
        for score in each[0]["scores"]:
            cells = [
                over_seeds([one["scores"][score][name][place] for one in each])
                for name in unknown
                for place in (0, 1)
            ]
            rows.append([method, score, *cells])
    heads = [f"{name}: {what}, %" for name in unknown for what in ("AUROC", "AUPRC")]
    return table(["method", "score", *heads], rows)


def run(
    task: str, plan: Plan, seeds: int, methods: Sequence[str], rounds: int, keep: Path | None = None
) -> dict[str, list[Numbers]]:
    """Train and measure every method with every seed, reusing the results in the file `keep`."""
    kept: dict[str, Numbers] = json.loads(keep.read_text()) if keep is not None and keep.exists() else {}
    results: dict[str, list[Numbers]] = {name: [] for name in methods}
    for seed in range(seeds):
        experiment = Experiment(TASKS[task](seed), plan, seed)
        for name in methods:
            start, images = time.perf_counter(), experiment.task.test[0]
            key = f"{task}, {plan}, seed {seed}: {name}"
            if key not in kept:
                plain, model = METHODS["torch: softmax"](experiment), METHODS[name](experiment)
                found = measured(model, experiment.task) | {"seconds": model.seconds}
                found["one"] = price(plain, model, images[:1], 4 * rounds)
                found["many"] = price(plain, model, images[:100], rounds)
                kept[key] = found
                if keep is not None:
                    keep.write_text(json.dumps(kept))
                print(f"{key}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
            results[name].append(kept[key])
    return results


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=list(TASKS), default="digits")
    parser.add_argument("--epochs", type=int, default=30, help="epochs per network")
    parser.add_argument("--seconds", type=float, help="training time per method, instead of epochs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5, help="timing rounds")
    parser.add_argument("--methods", default="", help="comma-separated parts of method names; default: all")
    parser.add_argument("--keep", type=Path, help="file that stores results for reuse")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    import_torchvision_first()
    torch.set_num_threads(1)
    wanted = arguments.methods.lower().split(",")
    methods = [name for name in METHODS if any(part in name.lower() for part in wanted)]
    plan = Plan(arguments.epochs, arguments.seconds)
    results = run(arguments.task, plan, arguments.seeds, methods, arguments.rounds, arguments.keep)
    limit = f"{plan.seconds:g} s of training" if plan.seconds else f"{plan.epochs} epochs"
    print(", ".join(f"{name} {version(name)}" for name in LIBRARIES))
    print(f"{arguments.task}, {limit} for each, {arguments.seeds} seeds, one thread\n")
    print(qualities(results) + "\n\n" + detections(results))


if __name__ == "__main__":
    main()
