"""Digits 0 to 7 are known, 8 and 9 are not: does a network notice?

Trains a plain network, chooses the sets of digits that its features confuse, trains a random-set network with
the same backbone for the same number of epochs, and compares the two on unseen digits, known and unknown.
`--seeds 5` repeats it and prints means with standard deviations.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import randomset as rs
from randomset.budgeting.reporting import clusters_of
from randomset.data import Source, load_source
from randomset.evaluation import Threshold, evaluate
from randomset.report import evaluation_report, gallery_of, write_report
from randomset.training.method import MethodConfig, MethodResult, train_method

OUT = Path("demo")
UNKNOWN = (8, 9)
EPOCHS = 30
COLUMNS = ("accuracy", "ECE", "AUROC entropy", "AUPRC entropy", "AUROC width", "AUPRC width")


@dataclass
class Split:
    """Known digits to train, validate and test on; known and unknown ones to tell apart."""

    train: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    unknown: Tensor
    classes: tuple[str, ...]

    @classmethod
    def from_digits(cls, digits: Source, seed: int) -> Split:
        """Keep 8 and 9 out, and split the rest."""
        known = ~torch.isin(digits.labels, torch.tensor(UNKNOWN))
        source = Source("known", "images", digits.inputs[known], digits.labels[known], digits.classes[:8])
        train, val, test = (
            (source.inputs[part], source.labels[part]) for part in source.split(0.1, 0.3, seed=seed)
        )
        return cls(train, val, test, digits.inputs[~known], source.classes)


def measured(model: Any, split: Split) -> list[float]:
    """Return the row of a model: it has widths only if it has bounds."""
    result = evaluate(model, split.test, {"unknown": split.unknown}, progress=False)
    row = [result["test"]["accuracy"], result["test"]["ece"]]
    for score in ("entropy", "credal width"):
        found = result["ood"]["unknown"]["scores"].get(score, {})
        row += [found.get("auroc", float("nan")), found.get("auprc", float("nan"))]
    return row


def run(digits: Source, seed: int) -> tuple[list[list[float]], MethodResult, Split]:
    """Train both networks on one split, and measure both."""
    split = Split.from_digits(digits, seed)
    config = MethodConfig(num_sets=20, epochs=EPOCHS, seed=seed)
    result = train_method(
        config, *split.train, split.classes, split.val, say=print if seed == 0 else lambda _: None
    )
    return [measured(result.plain, split), measured(result.network, split)], result, split


def table(rows: np.ndarray, spread: np.ndarray | None) -> str:
    """Write the comparison as Markdown."""
    lines = ["| model | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for i, name in enumerate(("plain network (softmax)", "random-set network")):
        cells = []
        for j, value in enumerate(rows[i]):
            cell = "–" if np.isnan(value) else f"{value:.3f}"
            cells.append(cell if spread is None or np.isnan(value) else f"{cell} ± {spread[i][j]:.3f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def explain(result: MethodResult, split: Split) -> list[tuple[str, rs.RandomSet, Tensor]]:
    """Pick three predictions: the surest known digit, the least sure known one and unknown one."""
    known, unknown = result.network.predict(split.test[0]), result.network.predict(split.unknown)
    sure, unsure = int(known.entropy.argmin()), int(known.entropy.argmax())
    strange = int(unknown.entropy.argmax())
    truth = split.classes
    return [
        (f"a {truth[split.test[1][sure]]}, the surest", known[sure], split.test[0][sure]),
        (f"a {truth[split.test[1][unsure]]}, the least sure", known[unsure], split.test[0][unsure]),
        ("an 8 or 9, never seen", unknown[strange], split.unknown[strange]),
    ]


def draw(examples: list[tuple[str, rs.RandomSet, Tensor]]) -> Path:
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
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / "predictions.png", dpi=120)
    return OUT / "predictions.png"


def report(result: MethodResult, split: Split) -> Path:
    """Write all that was measured as a page, with the samples that are worth a look."""
    tested = Source("digits", "images", *split.test, split.classes)
    strange = Source("8 and 9", "images", split.unknown, torch.full((len(split.unknown),), -1), split.classes)
    found = evaluate(
        result.network,
        tested,
        {"8 and 9": split.unknown},
        validation=split.val,
        classes=split.classes,
        progress=False,
    )
    threshold = Threshold(*(found["threshold"][key] for key in ("score", "value", "share")))
    gallery = gallery_of(result.network, found, tested, {"8 and 9": strange}, threshold=threshold)
    space = None if result.budgeter is None else clusters_of(result.budgeter)
    page = evaluation_report(
        found, title="Digits 0 to 7 are known, 8 and 9 are not", gallery=gallery, space=space
    )
    return write_report(page, OUT / "report.html")


def main() -> None:
    """Run the comparison and say what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1, help="how many repetitions to average over")
    seeds = parser.parse_args().seeds
    started = time.perf_counter()
    digits = load_source("digits")
    runs = []
    for seed in range(seeds):
        rows, result, split = run(digits, seed)
        runs.append(rows)
        if seed == 0:
            first = result, split
    scores = np.array(runs)
    with np.errstate(invalid="ignore"):
        spread = scores.std(0, ddof=1) if seeds > 1 else None
    print(f"\nUnknown digits against known ones, {seeds} seed{'s' if seeds > 1 else ''}:\n")
    print(table(scores.mean(0), spread))
    print("\nThree predictions of the random-set network:")
    examples = explain(*first)
    for name, answer, _ in examples:
        print(f"- {name}: {answer.explain()}; entropy {answer.entropy:.2f} bits")
    first[0].network.save(OUT)
    print(f"\nWrote {draw(examples)} and the network, {OUT / 'model.safetensors'}.")
    print(f"Wrote {report(*first)}: open it in a browser.")
    print(f"{time.perf_counter() - started:.0f} s. Next: randomset predict {OUT} digits | head")


if __name__ == "__main__":
    main()
