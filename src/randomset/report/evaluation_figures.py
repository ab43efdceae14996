"""Pictures of how good predictions are: reliability, uncertainty against confidence, widths and intervals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from randomset._core.files import replacing
from randomset.errors import RandomSetError
from randomset.report.axes import (
    BLUE,
    DARK,
    MOST_CLASSES,
    ORANGE,
    drawing_on,
    name_classes,
    panels,
    wide_enough,
)
from randomset.report.detection_figures import (
    axis_name,
    plot_conformal,
    plot_densities,
    plot_detection,
    plot_levels,
    right_answers,
    scores_of,
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

_SHOWN = 5000  # points of a picture; more only hide each other
_NAMES = (
    *("reliability", "detection_entropy", "detection_credal_width", "densities_entropy"),
    *("densities_credal_width", "confidence", "widths", "intervals", "conformal", "noise", "rotation"),
)
_WIDTH = "credal width"


def plot_reliability(result: Evaluation) -> Figure:
    """Draw the reliability diagram: accuracy by confidence, and below it how many test inputs each bin has.

    Hatched is the gap between accuracy and mean confidence; weighted by the shares below, it is the ECE.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> plot_reliability(result).axes[0].get_title()
    'calibration error (ECE) 0.4239'
    """
    test = result["test"]
    edges, count, confidence, accuracy = (
        np.array(test["reliability"][name], dtype=float)
        for name in ("edges", "count", "confidence", "accuracy")
    )
    filled = count > 0
    left, width = edges[:-1][filled], np.diff(edges)[filled]
    share, confidence, accuracy = 100 * count[filled] / count.sum(), confidence[filled], accuracy[filled]
    figure, (upper, lower) = panels(2, 1, (6, 6.5), sharex=True, height_ratios=(3, 1))
    upper.bar(left, accuracy, width, align="edge", color=BLUE, edgecolor=DARK, label="accuracy")
    gap = upper.bar(left, confidence - accuracy, width, accuracy, align="edge", fill=False, hatch="////")
    gap.set_label("gap to mean confidence")
    for bar in gap:
        bar.set_edgecolor(ORANGE)
    upper.plot([0, 1], [0, 1], "k--", linewidth=1, label="as sure as right")
    upper.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
    upper.set_title(f"calibration error (ECE) {test['ece']:.4f}")
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    lower.bar(left, share, width, align="edge", color="0.75", edgecolor="0.3")
    lower.set_yscale("log")
    lower.set_ylim(50 / count.sum(), 150)  # half an input is the floor
    lower.set_xlabel("confidence: probability of the predicted class")
    lower.set_ylabel("test inputs, %")
    return figure


def plot_against_confidence(result: Evaluation) -> Figure:
    """Draw entropy and, where there is one, credal width against confidence; wrong answers are crosses.

    Of more than 5000 test inputs, as many are drawn at random.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> [ax.get_ylabel() for ax in plot_against_confidence(result).axes]
    ['entropy, bits']
    """
    tested, right = result.predictions["test"], right_answers(result)
    chosen = np.arange(len(right))
    if len(right) > _SHOWN:
        chosen = np.random.default_rng(0).choice(len(right), _SHOWN, replace=False)
    confidence, right = tested.confidence.double().numpy()[chosen], right[chosen]
    drawn = [name for name in ("entropy", _WIDTH) if name in tested.scores]
    figure, axes = panels(1, len(drawn), (5.2 * len(drawn), 4.6))
    for ax, name in zip(axes, drawn, strict=True):
        values = scores_of(result, "test", name)[chosen]
        ok, no = f"right ({right.sum()})", f"wrong ({(~right).sum()})"
        ax.scatter(confidence[right], values[right], 9, DARK, alpha=0.35, linewidths=0, label=ok)
        ax.scatter(confidence[~right], values[~right], 18, ORANGE, marker="x", linewidths=1.1, label=no)
        ax.set_xlabel("confidence: probability of the predicted class")
        ax.set_ylabel(axis_name(name))
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    of = f"{len(chosen)} of {len(tested)}" if len(chosen) < len(tested) else f"{len(tested)}"
    figure.suptitle(f"{of} test inputs")
    return figure


def plot_widths_by_class(result: Evaluation, *, ax: Axes | None = None) -> Figure:
    """Draw the credal widths of test inputs by predicted class, right and wrong answers side by side.

    A box spans the quartiles, with a line at the median and a diamond at the mean; whiskers reach the 5th and
    95th of a hundred. Of more than 40 classes, those of the largest mean width are shown, right and wrong
    together.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> predict = lambda x: (x.softmax(1), {"credal width": x[:, 0]})
    >>> result = evaluate(predict, (torch.eye(3), torch.arange(3)))
    >>> plot_widths_by_class(result).axes[0].get_ylabel()
    'credal width'
    """
    widths, right = scores_of(result, "test", _WIDTH), right_answers(result)
    predicted = result.predictions["test"].labels.numpy()
    total = np.bincount(predicted, widths, minlength=len(result.classes))
    count = np.bincount(predicted, minlength=len(result.classes))
    shown = np.flatnonzero(count)
    groups = {"right": (right, -0.2, BLUE, ""), "wrong": (~right, 0.2, "#fdae6b", "////")}
    title = f"{len(widths)} test inputs"
    if len(shown) > MOST_CLASSES:
        title += f", the {MOST_CLASSES} widest of {len(shown)} predicted classes"
        shown = shown[np.argsort(-total[shown] / count[shown], kind="stable")[:MOST_CLASSES]]
        groups = {"right and wrong": (right | True, 0.0, BLUE, "")}
    figure, ax = drawing_on(ax, wide_enough(len(shown), 4.5))
    for name, (among, shift, colour, hatch) in groups.items():
        places = [i for i, c in enumerate(shown) if (among & (predicted == c)).any()]
        if not places:
            continue
        drawn = ax.boxplot(
            [widths[among & (predicted == shown[i])] for i in places],
            positions=[i + shift for i in places],
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
    name_classes(ax, [result.classes[c] for c in shown])
    ax.set(xlabel="predicted class", ylabel=axis_name(_WIDTH), title=title)
    if len(groups) > 1:
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def plot_intervals(
    result: Evaluation, samples: int = 100, seed: int = 0, *, ax: Axes | None = None
) -> Figure:
    """Draw lower, upper and pignistic probability of the predicted class for some test inputs.

    They are drawn at random and sorted by pignistic probability; wrong answers are crosses.

    >>> import torch
    >>> from randomset.evaluation import Prediction, evaluate
    >>> predict = lambda x: Prediction(x, lower=x / 2, upper=x)
    >>> plot_intervals(evaluate(predict, (torch.eye(3), torch.arange(3)))).axes[0].get_title()
    '3 test inputs'
    """
    tested = result.predictions["test"]
    if tested.lower is None or tested.upper is None:
        raise RandomSetError("the model has no intervals", expected="lower and upper probabilities")
    if samples < 1:
        raise RandomSetError("nothing to draw", got=samples, expected="one sample or more")
    some = min(samples, len(tested))
    chosen = np.random.default_rng(seed).choice(len(tested), some, replace=False)
    chosen = chosen[np.argsort(tested.confidence.numpy()[chosen], kind="stable")]
    predicted = tested.labels[:, None]
    lower, upper, pignistic = (
        values.gather(1, predicted)[:, 0].double().numpy()[chosen]
        for values in (tested.lower, tested.upper, tested.probabilities)
    )
    right = right_answers(result)[chosen]
    place = np.arange(1, some + 1)
    figure, ax = drawing_on(ax, (9, 4.5))
    thick = min(6.0, 400 / some)
    ax.vlines(place, lower, upper, color=BLUE, linewidth=thick, label="lower to upper, [Bel, Pl]")
    ok, no = f"pignistic, right ({right.sum()})", f"pignistic, wrong ({(~right).sum()})"
    ax.plot(place[right], pignistic[right], ".", color=DARK, markersize=5, label=ok)
    ax.plot(place[~right], pignistic[~right], "x", color=ORANGE, markersize=7, mew=1.8, label=no)
    ax.set(xlim=(0, some + 1), ylim=(-0.02, 1.02), xlabel="test inputs, by pignistic probability")
    ax.set_ylabel("probability of the predicted class")
    ax.set_title(f"{some} of {len(tested)} test inputs" if some < len(tested) else f"{some} test inputs")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def draw_all(result: Evaluation, folder: str | Path) -> list[Path]:
    """Draw every figure that there are numbers for, as PNG, and return the paths; old ones are removed.

    >>> import tempfile, torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in draw_all(result, folder)]
    ['reliability.png', 'densities_entropy.png', 'confidence.png']
    """
    tested = result.predictions["test"]
    scores = [name for name in ("entropy", _WIDTH) if name in tested.scores]
    figures: dict[str, Callable[[Evaluation], Figure]] = {"reliability": plot_reliability}
    if result["ood"]:
        figures |= {f"detection {name}": partial(plot_detection, score=name) for name in scores}
    figures |= {f"densities {name}": partial(plot_densities, score=name) for name in scores}
    figures["confidence"] = plot_against_confidence
    if _WIDTH in scores:
        figures["widths"] = plot_widths_by_class
    if tested.lower is not None and tested.upper is not None:
        figures["intervals"] = plot_intervals
    if "conformal" in result:
        figures["conformal"] = plot_conformal
    if "noise" in result:
        figures["noise"] = partial(plot_levels, change="noise")
    if "rotation" in result:
        figures["rotation"] = partial(plot_levels, change="rotation")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _NAMES:  # what another evaluation has left would be taken for this one's
        (folder / f"{name}.png").unlink(missing_ok=True)
    paths = []
    for name, plot in figures.items():
        paths.append(folder / f"{name.replace(' ', '_')}.png")
        with replacing(paths[-1]) as temporary:
            plot(result).savefig(temporary, format="png", dpi=150)
    return paths
