"""`randomset demo`: digits 0 to 7 are known, 8 and 9 are not. Does a network notice?"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from randomset._core.files import check_writable, lock_folder, replacing
from randomset.belief.random_set import RandomSet
from randomset.cli.checks import check_at_least_one, check_drawing
from randomset.cli.report import report
from randomset.data.sources import load_source
from randomset.errors import RandomSetError
from randomset.evaluation import Evaluation
from randomset.runs import Run
from randomset.training.config import TrainConfig
from randomset.training.resuming import TrainingStopped

__all__ = ["demo", "quiet"]

_UNKNOWN, _NAME = (8, 9), "8 and 9"
_MODELS = {"plain": ("softmax", "plain network (softmax)"), "run": ("rsnn", "random-set network")}
_COLUMNS = ("accuracy", "ECE", "AUROC entropy", "AUPRC entropy", "AUROC width", "AUPRC width")
Example = tuple[str, RandomSet, Tensor]


def demo(
    seeds: Annotated[int, typer.Option(help="number of repetitions to average over")] = 1,
    epochs: Annotated[int, typer.Option(help="passes over the digits")] = 30,
    out: Annotated[Path, typer.Option(help="a folder for data, networks, a figure and the report")] = Path(
        "demo"
    ),
) -> None:
    """Train a plain and a random-set network on digits 0 to 7; compare how they detect 8 and 9.

    Both have the same backbone, data, epochs and seed. Writes OUT/run, a run folder for all other commands,
    with its report.
    """
    check_at_least_one(seeds=seeds, epochs=epochs)
    check_drawing(True)
    check_writable(out / "known.npz")
    started = time.perf_counter()
    with lock_folder(out):
        known, unknown = _digits(out)
        rows: dict[str, list[list[float]]] = {name: [] for name in _MODELS}
        try:
            for seed in range(seeds):
                for name, (method, title) in _MODELS.items():
                    folder = out / (f"{name}-{seed}" if seed else name)
                    typer.echo(f"Training the {title}{f', seed {seed}' if seed else ''} …")
                    config = TrainConfig(
                        method=method, source=known, epochs=epochs, seed=seed, test=0.3, calibration=0.0
                    )
                    rows[name].append(_row(_trained_and_measured(folder, config, unknown)))
        except TrainingStopped as stop:
            raise typer.Exit(128 + stop.signal) from None
    typer.echo(f"\nUnknown versus known digits, {seeds} seed{'s' if seeds > 1 else ''}:\n")
    typer.echo(_table(rows))
    typer.echo("\nThree predictions of the random-set network:")
    run, examples = out / "run", _examples(Run(out / "run"), unknown)
    for name, answer, _ in examples:
        typer.echo(f"- {name}: {answer.explain()}; entropy {answer.entropy:.2f} bits")
    typer.echo(f"\nWrote {_drawn(examples, out / 'predictions.png')}, and the network into {run}.")
    report(run)
    typer.echo(f"{time.perf_counter() - started:.0f} s. Next: open the report in a browser, or")
    typer.echo(f"randomset serve {run}                 # draw digits, and see the network's predictions")
    typer.echo(f"randomset predict {run} digits | head")


def _digits(out: Path) -> tuple[str, str]:
    """Write the known and the unknown digits; return the paths."""
    digits = load_source("digits")
    unknown = torch.isin(digits.labels, torch.tensor(_UNKNOWN))
    classes = np.array(digits.classes[: -len(_UNKNOWN)])
    parts: dict[str, dict[str, Any]] = {
        "known": {"images": digits.inputs[~unknown], "labels": digits.labels[~unknown], "classes": classes},
        "unknown": {"images": digits.inputs[unknown]},
    }
    for name, arrays in parts.items():
        with replacing(out / f"{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
    first, second = (str((out / f"{name}.npz").resolve()) for name in parts)
    return first, second


def _trained_and_measured(folder: Path, config: TrainConfig, unknown: str) -> Evaluation:
    """Train and evaluate a run; replace that of an earlier demo."""
    if folder.exists():
        try:
            own = Run(folder).config.source == config.source
        except (OSError, RandomSetError):
            own = False
        if not own:
            raise RandomSetError(
                "the folder was not written by a demo", got=str(folder), remedy="Choose another with --out"
            )
        shutil.rmtree(folder)
    with quiet():
        return Run.train(config, folder).evaluate(ood={_NAME: unknown})


def _row(result: Evaluation) -> list[float]:
    """Return the metrics of a model; NaN for the credal width if it has none."""
    row = [result["test"]["accuracy"], result["test"]["ece"]]
    for score in ("entropy", "credal width"):
        scores = result["ood"][_NAME]["scores"].get(score, {})
        row += [scores.get("auroc", float("nan")), scores.get("auprc", float("nan"))]
    return row


def _table(rows: dict[str, list[list[float]]]) -> str:
    """Return the comparison as Markdown, with standard deviations over several seeds."""
    lines = ["| model | " + " | ".join(_COLUMNS) + " |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for name, each in rows.items():
        cells = [_mean_and_deviation(column) for column in zip(*each, strict=True)]
        lines.append(f"| {_MODELS[name][1]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean_and_deviation(values: tuple[float, ...]) -> str:
    if any(map(math.isnan, values)):
        return "–"
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def _examples(run: Run, unknown: str) -> list[Example]:
    """Choose three predictions: the most and least certain known digit, the least certain unknown one."""
    network: Any = run.model
    tested, unseen = run.data().test, run.load(unknown, labelled=False)
    known, other = (network.predict(source.inputs, progress=False) for source in (tested, unseen))
    sure, unsure, odd = int(known.entropy.argmin()), int(known.entropy.argmax()), int(other.entropy.argmax())
    truth = [tested.classes[int(label)] for label in tested.labels]
    return [
        (f"a {truth[sure]}, the most certain", known[sure], tested.inputs[sure]),
        (f"a {truth[unsure]}, the least certain", known[unsure], tested.inputs[unsure]),
        ("an 8 or 9, never seen", other[odd], unseen.inputs[odd]),
    ]


def _drawn(examples: list[Example], path: Path) -> Path:
    """Draw the three digits above their masses."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    axes = figure.subplots(2, 3, height_ratios=(1, 1.3))
    for column, (name, answer, image) in enumerate(examples):
        axes[0][column].imshow(image[0].numpy(), cmap="gray_r")
        axes[0][column].set(title=name, xticks=[], yticks=[])
        top = answer.mass.topk(6).indices.flip(0).tolist()
        bars = axes[1][column]
        bars.barh(
            [answer.budget.set_names[k] if k < len(answer.budget) - 1 else "Θ" for k in top],
            answer.mass[top].numpy(),
        )
        label = int(answer.labels)
        low, high = answer.lower[label], answer.upper[label]
        title = f"predicted {answer.label_names[0]},\nprobability in [{low:.2f}, {high:.2f}]"
        bars.set(xlim=(0, 1), xlabel="mass", title=title)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
    return path


@contextmanager
def quiet() -> Iterator[None]:
    """Print only warnings within a block."""
    logger = logging.getLogger("randomset")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
