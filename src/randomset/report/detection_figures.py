"""Figures of uncertainty: unknown inputs, score distributions, conformal sets, noise, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from randomset.errors import RandomSetError
from randomset.evaluation.result import Evaluation
from randomset.evaluation.tables import with_unit
from randomset.report.axes import (
    BLUE,
    DARK,
    MAX_CLASSES,
    ORANGE,
    class_figure_size,
    label_classes,
    label_text,
    panels,
    save_figures,
)
from randomset.report.charts import DetectionCurves, correct_predictions, scores_of, sorted_levels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "draw_comparison",
    "plot_conformal",
    "plot_curves",
    "plot_densities",
    "plot_detection",
    "plot_entropies",
    "plot_levels",
]

_COLOURS = (  # with dashes, so that lines also differ in black and white
    DARK, ORANGE, "#238b45", "#6a51a3", "#000000", "#b8860b", "#c51b8a",
)  # fmt: skip
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (8, 2, 1, 2, 1, 2)), (0, (3, 5)))
_BINS = 30


def plot_detection(result: Evaluation, score: str = "entropy") -> Figure:
    """Plot how well a score separates unknown inputs (positive) from test inputs: ROC and precision–recall.

    Chance level is the diagonal on the left, and the share of unknown inputs on the right.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> data = (8 * torch.eye(3), torch.arange(3))
    >>> result = evaluate(lambda x: x.softmax(1), data, {"grey": torch.zeros(1, 3)})
    >>> print(plot_detection(result).axes[0].get_legend().get_texts()[0].get_text())
    1.000  grey
    """
    unknown = list(result["ood"])
    if not unknown:
        raise _not_measured("unknown data", 'evaluate with ood={"name": data}')
    known = scores_of(result, "test", score)
    lines = {name: (known, scores_of(result, name, score)) for name in unknown}
    return draw_curves(lines, f"detecting unknown inputs by {label_text(score)}")


def draw_curves(scores: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], title: str) -> Figure:
    """Plot ROC and precision–recall curves of pairs of scores, (known, unknown), by name."""
    figure, (roc, precision_recall) = panels(1, 2, (10, 5 + 0.2 * len(scores)))
    roc.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    curves = {label_text(name): DetectionCurves.of(*pair) for name, pair in scores.items()}
    chances = {curve.chance for curve in curves.values()}
    for i, (name, curve) in enumerate(curves.items()):
        label = f"{curve.auroc:.3f}  {name}"
        roc.plot(curve.false_positive_rate, curve.true_positive_rate, label=label, **_line_style(i))
        label = f"{curve.auprc:.3f}  {name}"
        label += "" if len(chances) == 1 else f", chance {curve.chance:.2f}"
        style = {"drawstyle": "steps-post", **_line_style(i)}
        precision_recall.plot(curve.recall, curve.precision, label=label, **style)
    roc.set_xlabel("test inputs flagged as unknown (false positive rate)")
    roc.set_ylabel("unknown inputs detected (true positive rate)")
    precision_recall.set_xlabel("unknown inputs detected (recall)")
    precision_recall.set_ylabel("unknown inputs among those flagged (precision)")
    if len(chances) == 1:
        precision_recall.axhline(*chances, color="0.6", linewidth=0.8)
    for ax, area in ((roc, "AUROC"), (precision_recall, "AUPRC")):
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.legend(title=area, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    figure.suptitle(title)
    return figure


def plot_densities(result: Evaluation, score: str = "entropy") -> Figure:
    """Plot the distribution of a score: correct and wrong predictions, test data and every unknown data set.

    Each histogram sums to 100 %; the vertical axis is logarithmic, since scores often cluster at zero.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> plot_densities(result).axes[0].get_xlabel()
    'entropy, bits'
    """
    known, correct = scores_of(result, "test", score), correct_predictions(result)
    others = [(f"unknown: {label_text(name)}", scores_of(result, name, score)) for name in result["ood"]]
    pooled = np.concatenate([known, *(values for _, values in others)])
    low, high = min(0.0, float(pooled.min())), float(pooled.max())
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    groups = {"test inputs by prediction": [("correct", known[correct]), ("wrong", known[~correct])]}
    if others:
        groups["test and unknown inputs"] = [("test data", known), *others]
    figure, axes = panels(1, len(groups), (5.2 * len(groups), 4 + 0.2 * len(others)), sharey=True)
    for ax, (title, group) in zip(axes, groups.items(), strict=True):
        ax.set_title(title)
        for i, (name, values) in enumerate(group):
            share = 100 * np.histogram(values, edges)[0] / max(len(values), 1)
            label = f"{name} ({len(values)})"
            if i == 0:
                ax.stairs(share, edges, fill=True, color=BLUE, label=label)
            else:  # leave a gap at empty bins: lines down to zero would hide the others
                share[share == 0] = np.nan
                style = {"color": ORANGE} if name == "wrong" else _line_style(i - 1)
                ax.stairs(share, edges, baseline=None, linewidth=1.6, label=label, **style)
        ax.set_xlabel(axis_name(score))
        ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    axes[0].set_yscale("log")
    largest = max(len(known), *(len(values) for _, values in others), 1)
    axes[0].set_ylim(50 / largest, 150)  # from half an input
    axes[0].set_ylabel("inputs per bin, %")
    return figure


def plot_conformal(result: Evaluation, score: str | None = None) -> Figure:
    """Plot coverage and mean size of conformal sets per class, for marginal and class-conditional guarantees.

    The default `score` is 1 − Pl, or 1 − BetP for a model without bounds. Classes without test inputs are
    omitted; of more than 40 classes, those with the lowest coverage are shown.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> data = (torch.eye(3), torch.arange(3))
    >>> result = evaluate(lambda x: x.softmax(1), data, validation=(2 * data[0], data[1]))
    >>> plot_conformal(result).axes[1].get_ylabel()
    'mean set size'
    """
    if "conformal" not in result:
        raise _not_measured("conformal sets", "evaluate with validation= or calibration=")
    found = result["conformal"]
    available = list(dict.fromkeys(row["score"] for row in found["rows"]))
    score = score or ("1 - Pl" if "1 - Pl" in available else "1 - BetP")
    if score not in available:
        expected = f"one of {', '.join(available)}"
        raise RandomSetError("no conformal sets for this score", got=score, expected=expected)
    rows = sorted((row for row in found["rows"] if row["score"] == score), key=lambda row: row["by_class"])
    coverage = np.array([row["class_coverage"] for row in rows], dtype=float)  # None becomes NaN
    size = np.array([row["class_size"] for row in rows], dtype=float)
    shown = np.flatnonzero(~np.isnan(coverage).any(0))
    title = f"conformal sets, score {score}"
    if len(shown) > MAX_CLASSES:
        title += f": the {MAX_CLASSES} of {len(shown)} classes with the lowest coverage"
        shown = shown[np.argsort(coverage[0, shown], kind="stable")[:MAX_CLASSES]]
    figure, (upper, lower) = panels(2, 1, class_figure_size(len(shown), 6), sharex=True)
    for ax, values in ((upper, coverage), (lower, size)):
        for k, row in enumerate(rows):
            name = "class-conditional guarantee" if row["by_class"] else "marginal guarantee"
            positions = np.arange(len(shown)) + 0.4 * k - 0.2
            for bar in ax.bar(positions, values[k, shown], 0.4, color=(BLUE, DARK)[k], label=name):
                bar.set(hatch=("", "////")[k], edgecolor=(DARK, "white")[k])
    target = 1 - found["alpha"]
    upper.axhline(target, color=ORANGE, linestyle="--", linewidth=1.8, label=f"target {target:g}")
    upper.set_ylim(0, 1.02)
    upper.set_ylabel("coverage")
    lower.set_ylabel("mean set size")
    lower.set_xlabel("true class")
    label_classes(lower, [result.classes[c] for c in shown])
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title)
    return figure


def plot_levels(result: Evaluation, change: Literal["noise", "rotation"]) -> Figure:
    """Plot accuracy, mean entropy and, if the model has one, mean credal width under noise or rotation.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> images = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    >>> result = evaluate(lambda x: x.flatten(1)[:, :3].softmax(1), (images, torch.arange(6) % 3),
    ...                   rotation=[(-60, 0), (0, 60)])
    >>> [text.get_text() for text in plot_levels(result, "rotation").axes[-1].get_xticklabels()]
    ['none', '−60° to 0°', '0° to 60°']
    """
    if change not in ("noise", "rotation"):
        raise RandomSetError("unknown change of images", got=change, expected='"noise" or "rotation"')
    if change not in result:
        raise _not_measured(
            change, f"evaluate with {change}=randomset.evaluation.robustness.{change.upper()}"
        )
    rows = sorted_levels(result[change]) if change == "noise" else list(result[change])
    measures = [name for name in ("accuracy", "entropy", "credal width") if name in rows[0]]
    size = (min(14.0, max(6.5, 1.2 * len(rows))), 1.2 + 1.9 * len(measures))
    figure, axes = panels(len(measures), 1, size, sharex=True)
    styles = ((DARK, "o", ""), (ORANGE, "D", "//"), ("#238b45", "s", ".."))
    for ax, name, (colour, marker, hatch) in zip(axes, measures, styles, strict=False):
        values = np.array([row[name] for row in rows], dtype=float)
        if change == "noise":
            ax.plot([row["level"] for row in rows], values, marker=marker, color=colour)
        else:  # ranges of angles have no order for a line to follow
            ax.bar(range(len(rows)), values, 0.6, color=colour, hatch=hatch, edgecolor="white")
        ax.set_ylabel(name if name == "accuracy" else f"mean {axis_name(name)}")
        ax.set_ylim(0, 1.02 if name == "accuracy" else 1.08 * max(float(np.nanmax(values)), 1e-3))
        ax.grid(axis="y", color="0.9", linewidth=0.6)
        ax.set_axisbelow(True)
    if change == "noise":
        axes[-1].set_xlabel("noise, standard deviation (pixels from 0 to 1)")
    else:
        axes[-1].set_xticks(range(len(rows)), [_angle_range(row["level"]) for row in rows], fontsize=8)
        axes[-1].tick_params(axis="x", rotation=45 if len(rows) > 12 else 0)
        axes[-1].set_xlabel("range of rotation angles")
    samples = result.numbers.get("changed_samples")
    figure.suptitle(f"{change}, {samples} test inputs" if samples else change)
    return figure


def axis_name(score: str) -> str:
    """Return a score's name with its unit, as an axis label.

    >>> axis_name("entropy")
    'entropy, bits'
    """
    return with_unit(score, label_text(score))


def _line_style(number: int) -> dict[str, Any]:
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _LINES[number % len(_LINES)]}


def _angle_range(level: Sequence[float] | None) -> str:
    return "none" if level is None else f"{level[0]:g}° to {level[1]:g}°".replace("-", "−")


def _not_measured(what: str, remedy: str) -> RandomSetError:
    return RandomSetError(f"the evaluation has no {what}", remedy=f"Measure it first: {remedy}")


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
