"""Pictures of several methods side by side: ROC, precision–recall, entropies of known and unknown inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from randomset._core.files import replacing
from randomset.evaluation.result import Evaluation
from randomset.report.axes import panels, plain
from randomset.report.detection_figures import draw_curves, scores_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_comparison", "plot_curves", "plot_entropies"]


def plot_curves(
    results: Mapping[str, Evaluation], unknown: str, score: str = "entropy", note: str = ""
) -> Figure:
    """Draw how well each method tells unknown inputs (positive) from test inputs, by one score."""
    lines = {
        method: (scores_of(result, "test", score), scores_of(result, unknown, score))
        for method, result in results.items()
    }
    return draw_curves(lines, f"{plain(unknown)} told by {plain(score)}{note}")


def plot_entropies(results: Mapping[str, Evaluation], note: str = "") -> Figure:
    """Draw the mean entropy of test data and of each unknown set, for every method."""
    figure, (ax,) = panels(1, 1, (max(6.0, 1.3 * len(results)), 4.5))
    names = ["test", *next(iter(results.values()))["ood"]]
    hatches, greys = ("", "//", "..", "xx", "--", "++"), np.linspace(0.25, 0.85, len(names))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        means = [float(scores_of(result, name, "entropy").mean()) for result in results.values()]
        places = np.arange(len(results)) + (number - (len(names) - 1) / 2) * width
        label = "test data" if name == "test" else f"unknown: {plain(name)}"
        ax.bar(
            places,
            means,
            width,
            color=str(greys[number]),
            hatch=hatches[number % len(hatches)],
            edgecolor="white",
            label=label,
        )
    ax.set_xticks(range(len(results)), [plain(method) for method in results])
    ax.set_ylabel(f"mean entropy, bits{note}")
    ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=min(len(names), 3))
    return figure


def draw_comparison(runs: Mapping[str, Path], folder: Path) -> list[Path]:
    """Draw the figures of several folders with evaluations, the first seed's of each method, as PNG."""
    results = {method: Evaluation.load(run) for method, run in runs.items()}
    folder.mkdir(parents=True, exist_ok=True)
    unknown = list(next(iter(results.values()))["ood"])
    note = " (first seed)"
    figures = {f"curves_{name}": plot_curves(results, name, note=note) for name in unknown}
    figures["entropies"] = plot_entropies(results, note)
    paths: list[Path] = []
    for name, figure in figures.items():
        short = name.replace("/", "-")[:100]
        taken = sum(path.stem.startswith(short) for path in paths)
        paths.append(folder / f"{short}{f'_{taken + 1}' if folder / f'{short}.png' in paths else ''}.png")
        with replacing(paths[-1]) as temporary:
            figure.savefig(temporary, format="png", dpi=150)
    return paths
