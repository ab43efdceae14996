"""Figures of prediction quality: reliability, uncertainty against confidence, credal widths and intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from randomset.errors import RandomSetError
from randomset.report.axes import (
    BLUE,
    DARK,
    MAX_CLASSES,
    MAX_POINTS,
    ORANGE,
    class_figure_size,
    figure_and_axes,
    label_classes,
    panels,
    save_figures,
)
from randomset.report.charts import correct_predictions, reliability_bins, scores_of
from randomset.report.detection_figures import (
    axis_name,
    plot_conformal,
    plot_densities,
    plot_detection,
    plot_levels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from randomset.evaluation import Evaluation

__all__ = [
    "draw_all",
    "plot_against_confidence",
    "plot_intervals",
    "plot_reliability",
    "plot_widths_by_class",
]

_NAMES = (
    "reliability", "detection_entropy", "detection_credal_width", "densities_entropy",
    "densities_credal_width", "densities_reliability", "confidence", "widths", "intervals", "conformal",
    "noise", "rotation",
)  # fmt: skip
_WIDTH = "credal width"


def plot_reliability(result: Evaluation) -> Figure:
    """Plot the reliability diagram: accuracy by confidence, and below it the share of test inputs per bin.

    The hatched gap between accuracy and mean confidence, weighted by these shares, is the ECE.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> plot_reliability(result).axes[0].get_title()
    'calibration error (ECE) 0.4239'
    """
    left, right, count, confidence, accuracy = reliability_bins(result)
    width, share = right - left, 100 * count / count.sum()
    figure, (upper, lower) = panels(2, 1, (6, 6.5), sharex=True, height_ratios=(3, 1))
    upper.bar(left, accuracy, width, align="edge", color=BLUE, edgecolor=DARK, label="accuracy")
    gap = upper.bar(left, confidence - accuracy, width, accuracy, align="edge", fill=False, hatch="////")
    gap.set_label("gap to mean confidence")
    for bar in gap:
        bar.set_edgecolor(ORANGE)
    upper.plot([0, 1], [0, 1], "k--", linewidth=1, label="perfect calibration")
    upper.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
    upper.set_title(f"calibration error (ECE) {result['test']['ece']:.4f}")
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    lower.bar(left, share, width, align="edge", color="0.75", edgecolor="0.3")
    lower.set_yscale("log")
    lower.set_ylim(50 / count.sum(), 150)  # from half an input
    lower.set_xlabel("confidence: probability of the predicted class")
    lower.set_ylabel("test inputs, %")
    return figure


def plot_against_confidence(result: Evaluation) -> Figure:
    """Plot entropy and, if the model has one, credal width against confidence; crosses are wrong predictions.

    Of more than 5000 test inputs, a random sample of 5000 is shown.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> [ax.get_ylabel() for ax in plot_against_confidence(result).axes]
    ['entropy, bits']
    """
    tested, correct = result.predictions["test"], correct_predictions(result)
    chosen = np.arange(len(correct))
    if len(correct) > MAX_POINTS:
        chosen = np.random.default_rng(0).choice(len(correct), MAX_POINTS, replace=False)
    confidence, correct = tested.confidence.double().numpy()[chosen], correct[chosen]
    names = [name for name in ("entropy", _WIDTH) if name in tested.scores]
    figure, axes = panels(1, len(names), (5.2 * len(names), 4.6))
    for ax, name in zip(axes, names, strict=True):
        values = scores_of(result, "test", name)[chosen]
        right, wrong = f"correct ({correct.sum()})", f"wrong ({(~correct).sum()})"
        ax.scatter(confidence[correct], values[correct], 9, DARK, alpha=0.35, linewidths=0, label=right)
        ax.scatter(confidence[~correct], values[~correct], 18, ORANGE, marker="x", lw=1.1, label=wrong)
        ax.set_xlabel("confidence: probability of the predicted class")
        ax.set_ylabel(axis_name(name))
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(_sample_title(len(chosen), len(tested)))
    return figure


def plot_widths_by_class(result: Evaluation, *, ax: Axes | None = None) -> Figure:
    """Plot the credal widths of test inputs by predicted class, correct and wrong predictions side by side.

    Boxes span the quartiles, with a line at the median and a diamond at the mean; whiskers reach the 5th and
    95th percentiles. Of more than 40 classes, those with the largest mean width are shown, correct and wrong
    predictions together.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> predict = lambda x: (x.softmax(1), {"credal width": x[:, 0]})
    >>> result = evaluate(predict, (torch.eye(3), torch.arange(3)))
    >>> plot_widths_by_class(result).axes[0].get_ylabel()
    'credal width'
    """
    widths, correct = scores_of(result, "test", _WIDTH), correct_predictions(result)
    predicted = result.predictions["test"].labels.numpy()
    total = np.bincount(predicted, widths, minlength=len(result.classes))
    count = np.bincount(predicted, minlength=len(result.classes))
    shown = np.flatnonzero(count)
    groups = {"correct": (correct, -0.2, BLUE, ""), "wrong": (~correct, 0.2, "#fdae6b", "////")}
    title = f"{len(widths)} test inputs"
    if len(shown) > MAX_CLASSES:
        title += f", the {MAX_CLASSES} widest of {len(shown)} predicted classes"
        shown = shown[np.argsort(-total[shown] / count[shown], kind="stable")[:MAX_CLASSES]]
        groups = {"all": (correct | True, 0.0, BLUE, "")}
    figure, ax = figure_and_axes(ax, class_figure_size(len(shown), 4.5))
    for name, (among, shift, colour, hatch) in groups.items():
        columns = [i for i, c in enumerate(shown) if (among & (predicted == c)).any()]
        if not columns:
            continue
        drawn = ax.boxplot(
            [widths[among & (predicted == shown[i])] for i in columns],
            positions=[i + shift for i in columns],
            widths=0.36,
            whis=(5, 95),
            patch_artist=True,
            manage_ticks=False,
            showmeans=True,
            medianprops={"color": "black"},
            meanprops={"marker": "D", "ms": 4, "mfc": "white", "mec": "black"},
            flierprops={"marker": ".", "ms": 3, "mec": "0.4"},
        )
        for box in drawn["boxes"]:
            box.set(facecolor=colour, hatch=hatch)
        drawn["boxes"][0].set_label(f"{name} ({int(among.sum())})")
    label_classes(ax, [result.classes[c] for c in shown])
    ax.set(xlabel="predicted class", ylabel=axis_name(_WIDTH), title=title)
    if len(groups) > 1:
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def plot_intervals(
    result: Evaluation, samples: int = 100, seed: int = 0, *, ax: Axes | None = None
) -> Figure:
    """Plot lower, upper and pignistic probability of the predicted class for a sample of test inputs.

    The random sample is sorted by pignistic probability; crosses are wrong predictions.

    >>> import torch
    >>> from randomset.evaluation import Prediction, evaluate
    >>> predict = lambda x: Prediction(x, lower=x / 2, upper=x)
    >>> plot_intervals(evaluate(predict, (torch.eye(3), torch.arange(3)))).axes[0].get_title()
    '3 test inputs'
    """
    tested = result.predictions["test"]
    if tested.lower is None or tested.upper is None:
        raise RandomSetError("the model does not predict intervals", expected="lower and upper probabilities")
    if samples < 1:
        raise RandomSetError("samples must be positive", got=samples, expected="1 or more")
    samples = min(samples, len(tested))
    chosen = np.random.default_rng(seed).choice(len(tested), samples, replace=False)
    chosen = chosen[np.argsort(tested.confidence.numpy()[chosen], kind="stable")]
    predicted = tested.labels[:, None]
    lower, upper, pignistic = (
        values.gather(1, predicted)[:, 0].double().numpy()[chosen]
        for values in (tested.lower, tested.upper, tested.probabilities)
    )
    correct = correct_predictions(result)[chosen]
    rank = np.arange(1, samples + 1)
    figure, ax = figure_and_axes(ax, (9, 4.5))
    thickness = min(6.0, 400 / samples)
    ax.vlines(rank, lower, upper, color=BLUE, linewidth=thickness, label="lower to upper, [Bel, Pl]")
    right, wrong = f"pignistic, correct ({correct.sum()})", f"pignistic, wrong ({(~correct).sum()})"
    ax.plot(rank[correct], pignistic[correct], ".", color=DARK, markersize=5, label=right)
    ax.plot(rank[~correct], pignistic[~correct], "x", color=ORANGE, markersize=7, mew=1.8, label=wrong)
    ax.set(xlim=(0, samples + 1), ylim=(-0.02, 1.02), xlabel="test inputs, by pignistic probability")
    ax.set_ylabel("probability of the predicted class")
    ax.set_title(_sample_title(samples, len(tested)))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def draw_all(result: Evaluation, folder: str | Path) -> list[Path]:
    """Save every figure that the evaluation has numbers for as PNG, in place of older ones; return the paths.

    >>> import tempfile, torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in draw_all(result, folder)]
    ['reliability.png', 'densities_entropy.png', 'confidence.png']
    """
    tested = result.predictions["test"]
    scores = [name for name in ("entropy", _WIDTH) if name in tested.scores]
    figures = {"reliability": plot_reliability(result)}
    if result["ood"]:
        figures |= {f"detection {name}": plot_detection(result, name) for name in scores}
    figures |= {f"densities {name}": plot_densities(result, name) for name in scores}
    if tested.reliability is not None:
        figures["densities reliability"] = plot_densities(result, "1 - reliability")
    figures["confidence"] = plot_against_confidence(result)
    if _WIDTH in scores:
        figures["widths"] = plot_widths_by_class(result)
    if tested.lower is not None:
        figures["intervals"] = plot_intervals(result)
    if "conformal" in result:
        figures["conformal"] = plot_conformal(result)
    for change in ("noise", "rotation"):
        if change in result:
            figures[change] = plot_levels(result, change)
    for name in _NAMES:  # figures of an earlier evaluation would be mistaken for this one's
        (Path(folder) / f"{name}.png").unlink(missing_ok=True)
    return save_figures({name.replace(" ", "_"): figure for name, figure in figures.items()}, Path(folder))


def _sample_title(shown: int, total: int) -> str:
    return f"{shown} of {total} test inputs" if shown < total else f"{total} test inputs"
