"""Figures 26 and 27: the loss weights α and β, and the number K of focal sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from randomset.budgeting.overlap import number_of_sets
from randomset.evaluation.tables import Table
from randomset.report.axes import panels
from randomset.training.config import TrainConfig
from reproduction.exhibit import Exhibit, Numbers, mean_of, moments, over_seeds
from reproduction.measures import quality
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXHIBITS"]

WEIGHTS = {
    "tiny": (0.001, 0.1),
    "cpu": (0.0, 0.001, 0.01, 0.1),  # wider than the paper's range
    "full": (0.001, 0.005, 0.006, 0.009, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05),
}
COUNTS = {
    "tiny": (0, 8),
    "cpu": (0, 5, 20, 100),
    "full": (0, 5, 10, 20, 50, 100, 200, 500, number_of_sets(10) - 1),
}
SYMBOLS = {"alpha": "α", "beta": "β", "num_sets": "K"}
PAPER = {"alpha": 0.001, "beta": 0.001, "num_sets": 20}

Changes = Callable[[Workshop], list[dict[str, Any]]]


def _weights(shop: Workshop) -> list[dict[str, Any]]:
    """Vary α or β; the other keeps the paper's 0.001."""
    return [{name: value} for name in ("alpha", "beta") for value in WEIGHTS[shop.scale.name]]


def _counts(shop: Workshop) -> list[dict[str, Any]]:
    return [{"num_sets": count} for count in COUNTS[shop.scale.name]]


def _models(changes: Changes) -> Callable[[Workshop], list[TrainConfig]]:
    def models(shop: Workshop) -> list[TrainConfig]:
        return [
            shop.config("cifar10", seed=seed, **change) for change in changes(shop) for seed in shop.seeds
        ]

    return models


def _measure(changes: Changes) -> Callable[[Workshop], Numbers]:
    def measure(shop: Workshop) -> Numbers:
        rows = []
        for change in changes(shop):
            results = shop.evaluations("cifar10", **change)
            ((name, value),) = change.items()
            negative = [result["test"].get("negative_mass") for result in results]
            rows.append({"name": name, "value": value, "negative": negative, **quality(results)})
        return {"rows": rows}

    return measure


def _tables(numbers: Numbers) -> list[Table]:
    rows = [
        (
            f"{SYMBOLS[row['name']]} = {row['value']:g}",
            over_seeds(row["accuracy"]),
            over_seeds(row["ece"], 1, 4),
            moments(row["entropy"]),
            moments(row["width"]),
            over_seeds(row["negative"]),
            *(over_seeds(unknown["auroc"]) for unknown in row["unknown"].values()),
        )
        for row in numbers["rows"]
    ]
    unknown = numbers["rows"][0]["unknown"]
    columns = ("setting", "accuracy, %", "ECE", "entropy, bits", "credal width", "negative mass, %")
    return [Table("CIFAR-10", (*columns, *(f"{name}: AUROC, %" for name in unknown)), tuple(rows))]


def _verdict(numbers: Numbers) -> str:
    findings = []
    for name, paper in PAPER.items():
        accuracy = {row["value"]: mean_of(row["accuracy"]) for row in numbers["rows"] if row["name"] == name}
        if accuracy:
            best = max(accuracy, key=lambda value: accuracy[value])
            spread = 100 * (accuracy[best] - min(accuracy.values()))
            findings.append(
                f"the best {SYMBOLS[name]} is {best:g} (paper: {paper:g}), {spread:.2f} above the worst"
            )
    return f"In points of accuracy, {'; '.join(findings)}."


def _figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    figure, (ax,) = panels(1, 1, (7, 4))
    names = list(dict.fromkeys(row["name"] for row in numbers["rows"]))
    for name in names:
        rows = [row for row in numbers["rows"] if row["name"] == name]
        means = [100 * mean_of(row["accuracy"]) for row in rows]
        spreads = [
            100 * float(np.std(row["accuracy"], ddof=1)) if len(row["accuracy"]) > 1 else 0 for row in rows
        ]
        label = {"alpha": "α, β = 0.001", "beta": "β, α = 0.001", "num_sets": "K"}[name]
        ax.errorbar([row["value"] for row in rows], means, spreads, marker="o", capsize=3, label=label)
    ax.set_xscale("symlog", linthresh=5e-4 if "alpha" in names else 5)
    ax.set_xlabel("loss weight" if "alpha" in names else "number of focal sets K")
    ax.set_ylabel("accuracy, %")
    ax.legend()
    return {"figure": figure}


EXHIBITS = tuple(
    Exhibit(
        id=id,
        title=title,
        data=("cifar10",),
        models=_models(changes),
        measure=_measure(changes),
        tables=_tables,
        verdict=_verdict,
        figures=_figure,
    )
    for id, title, changes in (
        ("figure-26", "The loss weights α and β", _weights),
        ("figure-27", "The number K of focal sets", _counts),
    )
)
