"""The charts of a report, as data that its script draws, and the numbers behind charts and figures.

Curves are drawn twice from the same numbers: the script's charts can be zoomed, read and filtered, and need
no matplotlib; matplotlib's figures need no browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from randomset.belief.text import FAMILIAR
from randomset.evaluation.evaluator import RANKS
from randomset.evaluation.metrics import rank_average, risk_coverage
from randomset.evaluation.result import Evaluation
from randomset.evaluation.tables import UNITS
from randomset.models.prediction import check_score

if TYPE_CHECKING:
    from randomset.report.html import Page

__all__ = [
    "Curve",
    "DetectionCurves",
    "correct_predictions",
    "curves",
    "detection",
    "familiarity",
    "levels",
    "reliability",
    "reliability_bins",
    "scores_of",
    "selective",
    "sorted_levels",
    "thresholds",
]

Curve = list[tuple[float, float]]

_MAX_VALUES, _MAX_POINTS = 2001, 240
_DIAGONAL = [[[0, 0], [1, 1]]]
_UNIT_RANGES = {"x_range": [0, 1], "y_range": [0, 1]}


def thresholds(result: Evaluation) -> dict[str, Any]:
    """Return the sorted scores of every data set, from which the script counts those below a threshold."""
    correct, scores = correct_predictions(result), {}
    for score in result.predictions["test"].scores:
        if score == RANKS:
            continue
        values = {name: scores_of(result, name, score) for name in ("test", *result["ood"])}
        order = np.argsort(values["test"], kind="stable")
        accuracy = np.cumsum(correct[order]) / np.arange(1, len(correct) + 1)
        scores[score] = {
            "unit": UNITS.get(score, ""),
            "largest": max(float(column.max()) for column in values.values()) or 1.0,
            "accuracy": _evenly_spaced(accuracy),
            "sets": {
                name: {"size": len(column), "values": _evenly_spaced(np.sort(column))}
                for name, column in values.items()
            },
        }
    threshold = result["threshold"]
    return {"score": threshold["score"], "value": threshold["value"], "scores": scores}


def detection(page: Page, result: Evaluation) -> list[str]:
    """Chart how well unknown inputs are detected, by entropy and credal width."""
    pairs = {
        f"{name} by {score}": (scores_of(result, "test", score), scores_of(result, name, score))
        for name in result["ood"]
        for score in _main_scores(result)
    }
    return curves(page, pairs)


def curves(page: Page, scores: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]) -> list[str]:
    """Chart ROC and precision–recall curves of pairs of scores, (known, unknown), by name."""
    computed = {name: DetectionCurves.of(*pair) for name, pair in scores.items()}
    roc = {name: _thinned(c.false_positive_rate, c.true_positive_rate) for name, c in computed.items()}
    precision_recall = {name: _thinned(c.recall[::-1], c.precision[::-1]) for name, c in computed.items()}
    areas = {name: f"{c.auroc:.3f}" for name, c in computed.items()}
    return [
        page.chart(
            "ROC curve and AUROC", "test inputs flagged as unknown", "unknown inputs detected", roc,
            aids=_DIAGONAL, notes=areas, **_UNIT_RANGES,
        ),
        page.chart(
            "Precision–recall curve", "unknown inputs detected (recall)", "unknown among flagged (precision)",
            precision_recall, **_UNIT_RANGES,
        ),
    ]  # fmt: skip


def familiarity(page: Page, result: Evaluation) -> str:
    """Chart the distribution of the reliability of test and unknown inputs, and the limit of the familiar."""
    series, notes, limit, lowest = {}, {}, FAMILIAR, 1.0
    for name, found in result["reliability"].items():
        limit = found.get("familiar_from", FAMILIAR)
        values = np.sort(1 - scores_of(result, name, "1 - reliability"))
        lowest = min(lowest, limit, float(np.quantile(values, 0.01)))
        below = 100 * np.arange(1, len(values) + 1) / len(values)
        shown = "test inputs" if name == "test" else name
        series[shown] = _thinned(np.r_[0, values, 1], np.r_[0, below, 100])
        notes[shown] = f"{100 * found['familiar']:.1f} % familiar"
    x_range = [max(0.0, 1 - 1.1 * (1 - lowest)), 1]
    return page.chart(
        "Share of inputs with at most a given reliability", "reliability", "share of inputs, %", series,
        notes=notes, aids=[[[limit, 0], [limit, 100]]], x_range=x_range, y_range=[0, 100],
    )  # fmt: skip


def reliability(page: Page, result: Evaluation) -> str:
    """Chart accuracy by confidence."""
    low, high, _, confidence, accuracy = reliability_bins(result)
    bars = np.stack([low, high, accuracy, confidence], 1).tolist()
    title = f"Calibration: accuracy by confidence, with the gap dashed; ECE {result['test']['ece']:.4f}"
    return page.chart(title, "confidence", "accuracy", {}, bars=bars, aids=_DIAGONAL, **_UNIT_RANGES)


def selective(page: Page, result: Evaluation) -> str:
    """Chart the error rate among the most certain inputs."""
    tested, correct = result.predictions["test"], torch.from_numpy(correct_predictions(result))
    series = {}
    for score in _main_scores(result):
        curve = risk_coverage(tested.scores[score], correct)
        series[f"by {score}"] = _thinned(100 * curve.coverage.numpy(), 100 * curve.risk.numpy())
    return page.chart(
        "Selective prediction: error rate among the most certain inputs",
        "inputs answered (coverage), %", "errors among them (risk), %", series,
        x_range=[0, 100], y_range=[0, _largest(series)],
    )  # fmt: skip


def levels(page: Page, result: Evaluation, change: str) -> list[str]:
    """Chart accuracy and entropy under noise or rotation."""
    unit = "rotation, degrees" if change == "rotation" else "noise, standard deviation"
    rows = sorted_levels(result[change])
    accuracy = {"accuracy": [(row["level"], 100 * row["accuracy"]) for row in rows]}
    entropy = [(row["level"], row["entropy"]) for row in rows if row.get("entropy") is not None]
    charts = [page.chart(f"Accuracy under {change}", unit, "accuracy, %", accuracy, y_range=[0, 100])]
    if entropy:
        series = {"entropy, bits": entropy}
        y_range = [0, _largest(series)]
        charts.append(
            page.chart(f"Entropy under {change}", unit, "mean entropy, bits", series, y_range=y_range)
        )
    return charts


def _main_scores(result: Evaluation) -> list[str]:
    return [name for name in ("entropy", "credal width") if name in result.predictions["test"].scores]


def _largest(series: Mapping[str, Curve]) -> float:
    return max((y for points in series.values() for _, y in points), default=1.0) or 1.0


def _thinned(x: NDArray[Any], y: NDArray[Any]) -> Curve:
    """Keep at most a few hundred points of a curve, evenly spaced along its length."""
    length = np.r_[0, np.cumsum(np.hypot(np.diff(x), np.diff(y)))]
    wanted = np.linspace(0, length[-1], _MAX_POINTS)
    index = np.unique(np.r_[0, np.searchsorted(length, wanted).clip(0, len(x) - 1), len(x) - 1])
    return [(round(float(a), 5), round(float(b), 5)) for a, b in zip(x[index], y[index], strict=True)]


def _evenly_spaced(values: NDArray[Any]) -> list[float]:
    """Keep at most a few thousand evenly spaced values, with seven digits."""
    index = np.linspace(0, len(values) - 1, min(len(values), _MAX_VALUES)).round().astype(int)
    return [float(f"{value:.7g}") for value in values[index]]


def scores_of(result: Evaluation, name: str, score: str) -> NDArray[np.float64]:
    """Return a score, or the rank average of all scores, of every input of a data set."""
    scores = result.predictions[name].scores
    if score == RANKS:
        reference = result.predictions.get("validation", result.predictions["test"]).scores
        return rank_average(reference, scores).numpy()
    check_score(score, [*scores, RANKS])
    return scores[score].double().numpy()


def correct_predictions(result: Evaluation) -> NDArray[np.bool_]:
    """Return which test inputs were classified correctly."""
    return (result.predictions["test"].labels == result.labels["test"]).numpy()


def reliability_bins(result: Evaluation) -> tuple[NDArray[np.float64], ...]:
    """Return lower and upper edge, count, mean confidence and accuracy of every bin that is not empty."""
    stored = result["test"]["reliability"]
    edges = np.array(stored["edges"], dtype=float)
    values = (np.array(stored[name], dtype=float) for name in ("count", "confidence", "accuracy"))
    count, confidence, accuracy = values
    return tuple(column[count > 0] for column in (edges[:-1], edges[1:], count, confidence, accuracy))


class DetectionCurves(NamedTuple):
    """ROC and precision–recall curves of a score that is higher for unknown inputs (positive)."""

    false_positive_rate: NDArray[np.float64]
    true_positive_rate: NDArray[np.float64]
    auroc: float
    recall: NDArray[np.float64]
    precision: NDArray[np.float64]
    auprc: float
    chance: float

    @classmethod
    def of(cls, known: NDArray[Any], unknown: NDArray[Any]) -> DetectionCurves:
        """Compute both curves.

        >>> curves = DetectionCurves.of(np.array([0.1, 0.2, 0.4]), np.array([0.3]))
        >>> round(curves.auroc, 3), curves.chance
        (0.667, 0.25)
        """
        from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

        scores = np.concatenate([known, unknown])
        target = np.arange(len(scores)) >= len(known)
        false, true, _ = roc_curve(target, scores)
        precision, recall, _ = precision_recall_curve(target, scores)
        areas = float(auc(false, true)), float(average_precision_score(target, scores))
        return cls(false, true, areas[0], recall, precision, areas[1], float(target.mean()))


def sorted_levels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort rows of a sweep by level: clean images are level 0, a range is its middle.

    A range that contains others, such as the full circle, has no position on the axis and is omitted.

    >>> rows = [{"level": level} for level in ((0, 360), (30, 60), None)]
    >>> [row["level"] for row in sorted_levels(rows)]
    [0.0, 45.0]
    """
    levels = [row["level"] for row in rows]
    placed = [
        {**row, "level": 0.0 if row["level"] is None else float(np.mean(row["level"]))}
        for row in rows
        if not any(_contains(row["level"], other) for other in levels)
    ]
    return sorted(placed, key=lambda row: row["level"])


def _contains(level: Any, other: Any) -> bool:
    """Return whether a range contains another one.

    >>> _contains((0, 360), (0, 15)), _contains((0, 15), (0, 15)), _contains(0.3, 0.1)
    (True, False, False)
    """
    ranges = all(isinstance(value, (list, tuple)) for value in (level, other))
    return ranges and level != other and level[0] <= other[0] and other[1] <= level[1]
