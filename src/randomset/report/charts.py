"""The charts of a report, as what the script draws: curves, bars, a threshold to move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from randomset.evaluation.result import Evaluation
from randomset.evaluation.selective import risk_coverage
from randomset.evaluation.units import UNITS
from randomset.report.detection_figures import right_answers
from randomset.report.sections import Curve, Page

__all__ = ["curves", "detection", "levels", "reliability", "scores_of", "selective", "thresholds"]

_VALUES, _POINTS = 2001, 240


def thresholds(result: Evaluation) -> dict[str, Any]:
    """Sorted values of every score on every data set: the script counts how many are below a threshold."""
    found, right = {}, right_answers(result)
    names = [name for name in result.predictions["test"].scores if name != "rank average"]
    for score in names:
        sets = {name: scores_of(result, name, score) for name in ("test", *result["ood"])}
        most = max(float(values.max()) for values in sets.values())
        order = np.argsort(sets["test"], kind="stable")
        among = np.cumsum(right[order]) / np.arange(1, len(right) + 1)
        found[score] = {
            "unit": UNITS.get(score, ""),
            "most": most or 1.0,
            "right": _some(among),
            "sets": {
                name: {"size": len(values), "values": _some(np.sort(values))} for name, values in sets.items()
            },
        }
    threshold = result["threshold"]
    return {"score": threshold["score"], "value": threshold["value"], "scores": found}


def detection(page: Page, result: Evaluation) -> list[str]:
    """Draw how unknown inputs are told."""
    scores = [one for one in ("entropy", "credal width") if one in result.predictions["test"].scores]
    lines = {
        f"{name} by {score}": (scores_of(result, "test", score), scores_of(result, name, score))
        for name in result["ood"]
        for score in scores
    }
    return curves(page, lines)


def curves(page: Page, lines: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]) -> list[str]:
    """Draw ROC and precision-recall curves of known and unknown scores."""
    from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

    roc: dict[str, Curve] = {}
    precise: dict[str, Curve] = {}
    areas: dict[str, str] = {}
    for name, (known, other) in lines.items():
        scores, target = np.r_[known, other], np.r_[np.zeros(len(known)), np.ones(len(other))]
        false, true, _ = roc_curve(target, scores)
        precision, recall, _ = precision_recall_curve(target, scores)
        roc[name], areas[name] = _thinned(false, true), f"{roc_auc_score(target, scores):.3f}"
        precise[name] = _thinned(recall[::-1], precision[::-1])
    unit = {"x_range": [0, 1], "y_range": [0, 1]}
    return [
        page.chart(
            "ROC, with its area", "test inputs taken for unknown", "unknown inputs found", roc,
            aids=[[[0, 0], [1, 1]]], notes=areas, **unit,
        ),
        page.chart("Precision, recall", "unknown inputs found", "truly unknown among those", precise, **unit),
    ]  # fmt: skip


def reliability(page: Page, result: Evaluation) -> str:
    """Draw the accuracy by confidence."""
    found = result["test"]["reliability"]
    bars = [
        [low, high, accuracy, confidence]
        for low, high, count, confidence, accuracy in zip(
            found["edges"][:-1], found["edges"][1:], found["count"], found["confidence"], found["accuracy"],
            strict=True,
        )
        if count
    ]  # fmt: skip
    title = f"Accuracy by confidence; dashed is the gap, ECE {result['test']['ece']:.4f}"
    return page.chart(
        title,
        "confidence",
        "accuracy",
        {},
        bars=bars,
        aids=[[[0, 0], [1, 1]]],
        x_range=[0, 1],
        y_range=[0, 1],
    )


def selective(page: Page, result: Evaluation) -> str:
    """Draw the errors among the surest inputs."""
    tested, right = result.predictions["test"], torch.from_numpy(right_answers(result))
    series = {}
    for score in [one for one in ("entropy", "credal width") if one in tested.scores]:
        curve = risk_coverage(tested.scores[score], right)
        series[f"by {score}"] = _thinned(100 * curve.coverage.numpy(), 100 * curve.risk.numpy())
    return page.chart(
        "Errors among the surest inputs", "inputs that are answered, %", "wrong among them, %", series,
        x_range=[0, 100], y_range=[0, _top(series)],
    )  # fmt: skip


def levels(page: Page, result: Evaluation, name: str) -> list[str]:
    """Draw accuracy and entropy on changed images."""
    unit = "rotation, degrees" if name == "rotation" else "noise, standard deviation"
    every = [row["level"] for row in result[name]]
    rows = sorted(
        (
            {**row, "level": _middle(row["level"])}
            for row in result[name]
            if not any(_holds(row["level"], other) for other in every)  # it stands in the table alone
        ),
        key=lambda row: row["level"],
    )
    accuracy = {"accuracy": [(row["level"], 100 * row["accuracy"]) for row in rows]}
    doubt = {
        "entropy, bits": [(row["level"], row["entropy"]) for row in rows if row.get("entropy") is not None]
    }
    charts = [page.chart(f"Accuracy under {name}", unit, "accuracy, %", accuracy, y_range=[0, 100])]
    if doubt["entropy, bits"]:
        charts.append(
            page.chart(f"Entropy under {name}", unit, "mean entropy, bits", doubt, y_range=[0, _top(doubt)])
        )
    return charts


def _top(series: Mapping[str, Curve]) -> float:
    return max((y for points in series.values() for _, y in points), default=1.0) or 1.0


def _middle(level: Any) -> float:
    """Place a level on an axis: nothing is zero, a range its middle."""
    return 0.0 if level is None else float(np.mean(level))


def _holds(level: Any, other: Any) -> bool:
    """Say whether a range contains another level.

    >>> _holds((0, 360), (0, 15)), _holds((0, 15), (0, 15)), _holds(0.3, 0.1)
    (True, False, False)
    """
    ranges = [one for one in (level, other) if isinstance(one, Sequence)]
    return len(ranges) == 2 and level != other and level[0] <= other[0] and other[1] <= level[1]


def scores_of(result: Evaluation, name: str, score: str) -> NDArray[Any]:
    """Return a score of a data set as numbers."""
    return result.predictions[name].scores[score].double().numpy()


def _thinned(x: NDArray[Any], y: NDArray[Any]) -> Curve:
    """Keep at most a few hundred points of a curve, evenly along its length."""
    length = np.r_[0, np.cumsum(np.hypot(np.diff(x), np.diff(y)))]
    wanted = np.linspace(0, length[-1], _POINTS)
    places = np.unique(np.r_[0, np.searchsorted(length, wanted).clip(0, len(x) - 1), len(x) - 1])
    return [(round(float(a), 5), round(float(b), 5)) for a, b in zip(x[places], y[places], strict=True)]


def _some(values: NDArray[Any]) -> list[float]:
    """Take evenly spaced values of many, with seven digits."""
    places = np.linspace(0, len(values) - 1, min(len(values), _VALUES)).round().astype(int)
    return [float(f"{value:.7g}") for value in values[places]]
