"""Pictures of how a model meets what it does not know: unknown inputs, changed images, conformal sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from randomset.errors import RandomSetError
from randomset.evaluation.units import with_unit
from randomset.report.axes import BLUE, DARK, MOST_CLASSES, ORANGE, name_classes, panels, plain, wide_enough

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from randomset.evaluation import Evaluation

__all__ = ["plot_conformal", "plot_densities", "plot_detection", "plot_levels"]

_COLOURS = (DARK, ORANGE, "#238b45", "#6a51a3", "#000000", "#b8860b", "#c51b8a")
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (8, 2, 1, 2, 1, 2)), (0, (3, 5)))
_BINS = 30


def plot_detection(result: Evaluation, score: str = "entropy") -> Figure:
    """Draw how well a score tells unknown inputs (positive) from test inputs: ROC and precision–recall.

    Chance is the diagonal on the left; on the right it is the share of unknown inputs, given in the legend.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> data = (8 * torch.eye(3), torch.arange(3))
    >>> result = evaluate(lambda x: x.softmax(1), data, {"grey": torch.zeros(1, 3)})
    >>> print(plot_detection(result).axes[0].get_legend().get_texts()[0].get_text())
    1.000  grey
    """
    unknown = list(result["ood"])
    if not unknown:
        raise _missing("unknown data", 'evaluate with ood={"name": data}')
    known = scores_of(result, "test", score)
    lines = {name: (known, scores_of(result, name, score)) for name in unknown}
    return draw_curves(lines, f"unknown inputs told by {plain(score)}")


def draw_curves(lines: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], title: str) -> Figure:
    """Draw ROC and precision–recall of several pairs of scores, of known and of unknown inputs, by name."""
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

    figure, (roc, precision_recall) = panels(1, 2, (10, 5 + 0.2 * len(lines)))
    roc.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    chances = {len(other) / (len(known) + len(other)) for known, other in lines.values()}
    for i, (name, (known, other)) in enumerate(lines.items()):
        scores = np.concatenate([known, other])
        target = np.arange(len(scores)) >= len(known)
        false, true, _ = roc_curve(target, scores)
        roc.plot(false, true, label=f"{auc(false, true):.3f}  {plain(name)}", **_look(i))
        precision, recall, _ = precision_recall_curve(target, scores)
        label = f"{average_precision_score(target, scores):.3f}  {plain(name)}"
        label += "" if len(chances) == 1 else f", chance {target.mean():.2f}"
        precision_recall.plot(recall, precision, label=label, drawstyle="steps-post", **_look(i))
    roc.set_xlabel("test inputs taken for unknown (false positive rate)")
    roc.set_ylabel("unknown inputs found (true positive rate)")
    precision_recall.set_xlabel("unknown inputs found (recall)")
    precision_recall.set_ylabel("truly unknown among those found (precision)")
    if len(chances) == 1:
        precision_recall.axhline(*chances, color="0.6", linewidth=0.8)  # what guessing would reach
    for ax, area in ((roc, "AUROC"), (precision_recall, "AUPRC")):
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.legend(title=area, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    figure.suptitle(title)
    return figure


def plot_densities(result: Evaluation, score: str = "entropy") -> Figure:
    """Draw how a score spreads: right against wrong answers, and test data against every unknown set.

    Each line sums to 100 %; the height is logarithmic, since scores often pile up at zero.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> result = evaluate(lambda x: x.softmax(1), (torch.eye(3), torch.arange(3)))
    >>> plot_densities(result).axes[0].get_xlabel()
    'entropy, bits'
    """
    known, right = scores_of(result, "test", score), right_answers(result)
    others = [(f"unknown: {plain(name)}", scores_of(result, name, score)) for name in result["ood"]]
    everything = np.concatenate([known, *(values for _, values in others)])
    low, high = min(0.0, float(everything.min())), float(everything.max())
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    parts = {"answers to test inputs": [("right", known[right]), ("wrong", known[~right])]}
    if others:
        parts["test inputs and unknown inputs"] = [("test data", known), *others]
    figure, axes = panels(1, len(parts), (5.2 * len(parts), 4 + 0.2 * len(others)), sharey=True)
    for ax, (title, part) in zip(axes, parts.items(), strict=True):
        ax.set_title(title)
        for i, (name, values) in enumerate(part):
            share = 100 * np.histogram(values, edges)[0] / max(len(values), 1)
            label = f"{name} ({len(values)})"
            if i == 0:
                ax.stairs(share, edges, fill=True, color=BLUE, label=label)
            else:  # an empty bin is a gap; a line down to nothing would hide the others
                share[share == 0] = np.nan
                look = {"color": ORANGE} if name == "wrong" else _look(i - 1)
                ax.stairs(share, edges, baseline=None, linewidth=1.6, label=label, **look)
        ax.set_xlabel(axis_name(score))
        ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    axes[0].set_yscale("log")
    axes[0].set_ylim(
        50 / max(len(known), *(len(values) for _, values in others), 1), 150
    )  # half an input is the floor
    axes[0].set_ylabel(f"inputs in each of {_BINS} bins, %")
    return figure


def plot_conformal(result: Evaluation, score: str | None = None) -> Figure:
    """Draw the coverage and the mean size of conformal sets class by class, for both kinds of guarantee.

    Without a `score`, it is 1 − Pl, or 1 − BetP where a model has no bounds. Classes without test inputs are
    left out; of more than 40, those of the lowest coverage are shown.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> data = (torch.eye(3), torch.arange(3))
    >>> result = evaluate(lambda x: x.softmax(1), data, validation=(2 * data[0], data[1]))
    >>> plot_conformal(result).axes[1].get_ylabel()
    'classes in a set, mean'
    """
    if "conformal" not in result:
        raise _missing("conformal sets", "evaluate with validation= or calibration=")
    found = result["conformal"]
    there = list(dict.fromkeys(row["score"] for row in found["rows"]))
    score = score or ("1 - Pl" if "1 - Pl" in there else "1 - BetP")
    if score not in there:
        expected = f"one of {', '.join(there)}"
        raise RandomSetError("no conformal sets by this score", got=score, expected=expected)
    rows = sorted((row for row in found["rows"] if row["score"] == score), key=lambda row: row["by_class"])
    coverage = np.array([row["class_coverage"] for row in rows], dtype=float)  # None becomes NaN
    size = np.array([row["class_size"] for row in rows], dtype=float)
    shown = np.flatnonzero(~np.isnan(coverage).any(0))
    title = f"conformal sets by {score}"
    if len(shown) > MOST_CLASSES:
        title += f": the {MOST_CLASSES} of {len(shown)} classes with the lowest coverage"
        shown = shown[np.argsort(coverage[0, shown], kind="stable")[:MOST_CLASSES]]
    figure, (upper, lower) = panels(2, 1, wide_enough(len(shown), 6), sharex=True)
    for ax, values in ((upper, coverage), (lower, size)):
        for k, row in enumerate(rows):
            name = "guaranteed for each class" if row["by_class"] else "guaranteed for all inputs"
            place = np.arange(len(shown)) + 0.4 * k - 0.2
            for bar in ax.bar(place, values[k, shown], 0.4, color=(BLUE, DARK)[k], label=name):
                bar.set(hatch=("", "////")[k], edgecolor=(DARK, "white")[k])
    wanted = 1 - found["alpha"]
    upper.axhline(wanted, color=ORANGE, linestyle="--", linewidth=1.8, label=f"wanted: {wanted:g}")
    upper.set_ylim(0, 1.02)
    upper.set_ylabel("coverage")
    lower.set_ylabel("classes in a set, mean")
    lower.set_xlabel("true class")
    name_classes(lower, [result.classes[c] for c in shown])
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title)
    return figure


def plot_levels(result: Evaluation, change: Literal["noise", "rotation"]) -> Figure:
    """Draw accuracy, mean entropy and, where there is one, mean credal width under noise or rotation.

    >>> import torch
    >>> from randomset.evaluation import evaluate
    >>> images = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    >>> result = evaluate(lambda x: x.flatten(1)[:, :3].softmax(1), (images, torch.arange(6) % 3),
    ...                   rotation=[(-60, 0), (0, 60)])
    >>> [text.get_text() for text in plot_levels(result, "rotation").axes[-1].get_xticklabels()]
    ['none', '−60° to 0°', '0° to 60°']
    """
    if change not in ("noise", "rotation"):
        raise RandomSetError("no such change of images", got=change, expected='"noise" or "rotation"')
    if change not in result:
        raise _missing(change, f"evaluate with {change}=randomset.evaluation.sweeps.{change.upper()}")
    rows = list(result[change])
    if change == "noise":  # none is noise of scale zero
        rows = sorted(({**row, "level": row["level"] or 0.0} for row in rows), key=lambda row: row["level"])
    drawn = [name for name in ("accuracy", "entropy", "credal width") if name in rows[0]]
    size = (min(14.0, max(6.5, 1.2 * len(rows))), 1.2 + 1.9 * len(drawn))
    figure, axes = panels(len(drawn), 1, size, sharex=True)
    looks = ((DARK, "o", ""), (ORANGE, "D", "//"), ("#238b45", "s", ".."))
    for ax, name, (colour, marker, hatch) in zip(axes, drawn, looks, strict=False):
        values = np.array([row[name] for row in rows], dtype=float)
        if change == "noise":
            ax.plot([row["level"] for row in rows], values, marker=marker, color=colour)
        else:  # ranges of angles have no order that a line could follow
            ax.bar(range(len(rows)), values, 0.6, color=colour, hatch=hatch, edgecolor="white")
        ax.set_ylabel(name if name == "accuracy" else f"mean {axis_name(name)}")
        ax.set_ylim(0, 1.02 if name == "accuracy" else 1.08 * max(float(np.nanmax(values)), 1e-3))
        ax.grid(axis="y", color="0.9", linewidth=0.6)
        ax.set_axisbelow(True)
    if change == "noise":
        axes[-1].set_xlabel("noise, standard deviation where pixels go from 0 to 1")
    else:
        axes[-1].set_xticks(range(len(rows)), [_turned(row["level"]) for row in rows], fontsize=8)
        axes[-1].tick_params(axis="x", rotation=45 if len(rows) > 12 else 0)
        axes[-1].set_xlabel("rotation by an angle between")
    samples = result.numbers.get("changed_samples")
    figure.suptitle(f"{change}, {samples} test inputs" if samples else change)
    return figure


def scores_of(result: Evaluation, name: str, score: str) -> NDArray[np.float64]:
    """Return a score of every input of a data set, also the rank average of all scores."""
    from randomset.evaluation.ood import rank_average
    from randomset.evaluation.sections import RANKS

    scores = result.predictions[name].scores
    if score == RANKS:
        reference = result.predictions.get("validation", result.predictions["test"]).scores
        return rank_average(reference, scores).numpy()
    if score not in scores:
        expected = f"one of {', '.join(scores)}, {RANKS}"
        raise RandomSetError("the model has no such score", got=score, expected=expected)
    return scores[score].double().numpy()


def right_answers(result: Evaluation) -> NDArray[np.bool_]:
    """Say which test inputs were given their true class."""
    return (result.predictions["test"].labels == result.labels["test"]).numpy()


def axis_name(score: str) -> str:
    """Name a score with its unit.

    >>> axis_name("entropy")
    'entropy, bits'
    """
    return with_unit(score, plain(score))


def _look(number: int) -> dict[str, Any]:
    """Return colour and dashes of a line, so that it is told from others in black and white, too."""
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _LINES[number % len(_LINES)]}


def _turned(level: Sequence[float] | None) -> str:
    return "none" if level is None else f"{level[0]:g}° to {level[1]:g}°".replace("-", "−")


def _missing(what: str, remedy: str) -> RandomSetError:
    return RandomSetError(f"the evaluation has no {what}", remedy=f"Measure it first: {remedy}")
