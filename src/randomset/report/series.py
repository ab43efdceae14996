"""The numbers behind the figures and charts: scores, correct predictions, and detection curves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from randomset.errors import RandomSetError
from randomset.evaluation.ood import rank_average
from randomset.evaluation.result import Evaluation
from randomset.evaluation.sections import RANKS

__all__ = ["DetectionCurves", "correct_predictions", "reliability_bins", "scores_of", "sorted_levels"]


def scores_of(result: Evaluation, name: str, score: str) -> NDArray[np.float64]:
    """Return a score, or the rank average of all scores, of every input of a data set."""
    scores = result.predictions[name].scores
    if score == RANKS:
        reference = result.predictions.get("validation", result.predictions["test"]).scores
        return rank_average(reference, scores).numpy()
    if score not in scores:
        expected = f"one of {', '.join(scores)}, {RANKS}"
        raise RandomSetError("unknown score", got=score, expected=expected)
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
