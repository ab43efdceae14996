"""Pictures of several methods side by side: ROC, precision–recall, entropies of known and unknown inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from randomset.belief.storage import replacing
from randomset.evaluation.result import Evaluation
from randomset.report.axes import panels, plain
from randomset.report.detection_figures import line_look, scores_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_comparison", "plot_curves", "plot_entropies"]


def plot_curves(results: Mapping[str, Evaluation], unknown: str, score: str = "entropy") -> Figure:
    """Draw how well each method tells unknown inputs (positive) from test inputs, by one score."""
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

    figure, (roc, precision_recall) = panels(1, 2, (10, 5 + 0.2 * len(results)))
    roc.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    for number, (method, result) in enumerate(results.items()):
        known = scores_of(result, "test", score)
        scores = np.concatenate([known, scores_of(result, unknown, score)])
        target = np.arange(len(scores)) >= len(known)
        false, true, _ = roc_curve(target, scores)
        roc.plot(false, true, label=f"{auc(false, true):.3f}  {plain(method)}", **line_look(number))
        precision, recall, _ = precision_recall_curve(target, scores)
        label = f"{average_precision_score(target, scores):.3f}  {plain(method)}"
        precision_recall.plot(recall, precision, label=label, drawstyle="steps-post", **line_look(number))
    roc.set_xlabel("test inputs taken for unknown (false positive rate)")
    roc.set_ylabel("unknown inputs found (true positive rate)")
    precision_recall.set_xlabel("unknown inputs found (recall)")
    precision_recall.set_ylabel("truly unknown among those found (precision)")
    for ax, title in ((roc, "AUROC"), (precision_recall, "AUPRC")):
        ax.legend(title=title, loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False)
    figure.suptitle(f"{plain(unknown)} told by {score}")
    return figure


def plot_entropies(results: Mapping[str, Evaluation]) -> Figure:
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
    ax.set_ylabel("mean entropy, bits")
    ax.legend(frameon=False)
    return figure


def draw_comparison(runs: Mapping[str, Path], folder: Path) -> list[Path]:
    """Draw the figures of several run folders, one for each method, as PNG."""
    results = {method: Evaluation.load(run) for method, run in runs.items()}
    folder.mkdir(parents=True, exist_ok=True)
    unknown = list(next(iter(results.values()))["ood"])
    figures = {f"curves_{name}": plot_curves(results, name) for name in unknown}
    figures["entropies"] = plot_entropies(results)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name.replace('/', '-')}.png")
        with replacing(paths[-1]) as temporary:
            figure.savefig(temporary, format="png", dpi=150)
    return paths
