"""`randomset demo`: digits 0 to 7 are known, 8 and 9 are not. Does a network notice?"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from randomset._core.files import check_writable
from randomset._core.locks import lock_folder
from randomset.cli.checks import check_drawing
from randomset.cli.evaluate import evaluate_run
from randomset.cli.report import report
from randomset.errors import RandomSetError

if TYPE_CHECKING:
    from torch import Tensor

    from randomset.belief.random_set import RandomSet
    from randomset.evaluation import Evaluation

__all__ = ["demo"]

_UNKNOWN, _NAME = (8, 9), "8 and 9"
_MODELS = {"plain": ("softmax", "plain network (softmax)"), "run": ("rsnn", "random-set network")}
_COLUMNS = ("accuracy", "ECE", "AUROC entropy", "AUPRC entropy", "AUROC width", "AUPRC width")
Example = tuple[str, "RandomSet", "Tensor"]


def demo(
    seeds: Annotated[int, typer.Option(help="how many repetitions to average over")] = 1,
    epochs: Annotated[int, typer.Option(help="how often the digits are seen")] = 30,
    out: Annotated[Path, typer.Option(help="a folder for data, networks, a picture and the report")] = Path(
        "demo"
    ),
) -> None:
    """Train a plain and a random-set network on digits 0 to 7 of scikit-learn, and see who notices 8 and 9.

    Both have the same backbone, data, epochs and seed. Writes OUT/run, a run folder for all other commands,
    with its report.
    """
    for name, value in (("--seeds", seeds), ("--epochs", epochs)):
        if value < 1:
            raise RandomSetError(f"{name} is out of range", got=value, expected="1 or more")
    check_drawing(True)
    check_writable(out / "known.npz")
    from randomset.training.method import MethodConfig
    from randomset.training.report import TrainingStopped

    started = time.perf_counter()
    with lock_folder(out):
        known, unknown = _digits(out)
        rows: dict[str, list[list[float]]] = {name: [] for name in _MODELS}
        try:
            for seed in range(seeds):
                for name, (method, title) in _MODELS.items():
                    run = out / (f"{name}-{seed}" if seed else name)
                    typer.echo(f"Training the {title}{f', seed {seed}' if seed else ''} …")
                    config = MethodConfig(
                        method=method, source=known, epochs=epochs, seed=seed, test=0.3, calibration=0.0
                    )
                    rows[name].append(_row(_trained(run, config, unknown)))
        except TrainingStopped as stop:
            raise typer.Exit(128 + stop.signal) from None
    typer.echo(f"\nUnknown digits against known ones, {seeds} seed{'s' if seeds > 1 else ''}:\n")
    typer.echo(_table(rows))
    typer.echo("\nThree predictions of the random-set network:")
    run, examples = out / "run", _examples(out / "run", unknown)
    for name, answer, _ in examples:
        typer.echo(f"- {name}: {answer.explain()}; entropy {answer.entropy:.2f} bits")
    typer.echo(f"\nWrote {_drawn(examples, out / 'predictions.png')}, and the network into {run}.")
    report(run)
    typer.echo(f"{time.perf_counter() - started:.0f} s. Next: open the report in a browser, or")
    typer.echo(f"randomset serve {run}                 # draw digits, and see what the network makes of them")
    typer.echo(f"randomset predict {run} digits | head")


def _digits(out: Path) -> tuple[str, str]:
    """Write the known and the unknown digits; return the paths."""
    import numpy as np
    import torch

    from randomset._core.files import replacing
    from randomset.data.sources import load_source

    digits = load_source("digits")
    strange = torch.isin(digits.labels, torch.tensor(_UNKNOWN))
    classes = np.array(digits.classes[: -len(_UNKNOWN)])
    parts: dict[str, dict[str, Any]] = {
        "known": {"images": digits.inputs[~strange], "labels": digits.labels[~strange], "classes": classes},
        "unknown": {"images": digits.inputs[strange]},
    }
    for name, arrays in parts.items():
        with replacing(out / f"{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
    known, unknown = (str((out / f"{name}.npz").resolve()) for name in parts)
    return known, unknown


def _trained(run: Path, config: Any, unknown: str) -> Evaluation:
    """Train anew and measure; what an earlier demo left there is removed."""
    from randomset.runs.making import train_run
    from randomset.training.method import MethodConfig

    if run.exists():
        try:
            own = MethodConfig.load(run).source == config.source
        except (OSError, RandomSetError):
            own = False
        if not own:
            raise RandomSetError(
                "the folder is there already, and not of a demo",
                got=str(run),
                remedy="Choose another with --out",
            )
        shutil.rmtree(run)
    train_run(config, run)
    return evaluate_run(run, ood={_NAME: unknown}, timing=False, figures=False, quiet=True)


def _row(result: Evaluation) -> list[float]:
    """Return the numbers of a model: it has widths only if it has bounds."""
    row = [result["test"]["accuracy"], result["test"]["ece"]]
    for score in ("entropy", "credal width"):
        found = result["ood"][_NAME]["scores"].get(score, {})
        row += [found.get("auroc", float("nan")), found.get("auprc", float("nan"))]
    return row


def _table(rows: dict[str, list[list[float]]]) -> str:
    """Write the comparison as Markdown, with deviations over seeds if there are several."""
    from reproduction.exhibit import over_seeds

    lines = ["| model | " + " | ".join(_COLUMNS) + " |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for name, each in rows.items():
        columns = [
            [None if value != value else value for value in column] for column in zip(*each, strict=True)
        ]
        cells = [over_seeds(column, 1, 3) for column in columns]
        lines.append(f"| {_MODELS[name][1]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _examples(run: Path, unknown: str) -> list[Example]:
    """Pick three predictions: the surest known digit, the least sure known one and unknown one."""
    from randomset.models.random_set import RandomSetNetwork
    from randomset.runs.inputs import NetworkInputs, own_data

    network = RandomSetNetwork.load(run)
    load = NetworkInputs(network, run, strict=False)
    tested, strange = own_data(run, load)[0], load(unknown, labelled=False)
    known, other = (network.predict(source.inputs, progress=False) for source in (tested, strange))
    sure, unsure, odd = int(known.entropy.argmin()), int(known.entropy.argmax()), int(other.entropy.argmax())
    truth = [tested.classes[int(label)] for label in tested.labels]
    return [
        (f"a {truth[sure]}, the surest", known[sure], tested.inputs[sure]),
        (f"a {truth[unsure]}, the least sure", known[unsure], tested.inputs[unsure]),
        ("an 8 or 9, never seen", other[odd], strange.inputs[odd]),
    ]


def _drawn(examples: list[Example], path: Path) -> Path:
    """Draw the three digits above their masses."""
    from matplotlib.figure import Figure

    from randomset._core.files import replacing

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
