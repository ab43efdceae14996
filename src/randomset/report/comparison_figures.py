"""Figures that compare methods: ROC and precision–recall curves, entropies of known and unknown inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from randomset.evaluation.result import Evaluation
from randomset.report.axes import label_text, panels, save_figures
from randomset.report.detection_figures import draw_curves
from randomset.report.series import scores_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_comparison", "plot_curves", "plot_entropies"]


def plot_curves(
    results: Mapping[str, Evaluation], unknown: str, score: str = "entropy", note: str = ""
) -> Figure:
    """Plot how well each method separates unknown inputs (positive) from test inputs by one score."""
    lines = {
        method: (scores_of(result, "test", score), scores_of(result, unknown, score))
        for method, result in results.items()
    }
    return draw_curves(lines, f"detecting {label_text(unknown)} by {label_text(score)}{note}")


def plot_entropies(results: Mapping[str, Evaluation], note: str = "") -> Figure:
    """Plot the mean entropy of the test data and of each unknown data set, for every method."""
    figure, (ax,) = panels(1, 1, (max(6.0, 1.3 * len(results)), 4.5))
    names = ["test", *next(iter(results.values()))["ood"]]
    hatches, greys = ("", "//", "..", "xx", "--", "++"), np.linspace(0.25, 0.85, len(names))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        means = [float(scores_of(result, name, "entropy").mean()) for result in results.values()]
        positions = np.arange(len(results)) + (number - (len(names) - 1) / 2) * width
        label = "test data" if name == "test" else f"unknown: {label_text(name)}"
        grey, hatch = str(greys[number]), hatches[number % len(hatches)]
        ax.bar(positions, means, width, color=grey, hatch=hatch, edgecolor="white", label=label)
    ax.set_xticks(range(len(results)), [label_text(method) for method in results])
    ax.set_ylabel(f"mean entropy, bits{note}")
    ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=min(len(names), 3))
    return figure


def draw_comparison(runs: Mapping[str, Path], folder: Path) -> list[Path]:
    """Save the figures of a comparison as PNG.

    Args:
        runs: for each method, the folder with the evaluation of its first seed.
        folder: where the figures go.
    """
    results = {method: Evaluation.load(run) for method, run in runs.items()}
    note = " (first seed)"
    figures: dict[str, Figure] = {}
    for unknown in next(iter(results.values()))["ood"]:
        stem = f"curves_{unknown}".replace("/", "-")[:100]
        copies = sum(name.startswith(stem) for name in figures)
        name = f"{stem}_{copies + 1}" if stem in figures else stem
        figures[name] = plot_curves(results, unknown, note=note)
    figures["entropies"] = plot_entropies(results, note)
    return save_figures(figures, folder)
