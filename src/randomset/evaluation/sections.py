"""The sections of an evaluation: JSON-serialisable metrics computed from predictions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from torch import Tensor

from randomset.belief.decision import utility
from randomset.belief.text import FAMILIAR
from randomset.evaluation.conformal import SCORES, Conformal
from randomset.evaluation.metrics import (
    balanced_accuracy,
    brier_score,
    calibration_error,
    classwise_calibration_error,
    detection,
    fitted_temperature,
    negative_log_likelihood,
    rank_average,
    risk_coverage,
    tempered,
    top_accuracy,
)
from randomset.evaluation.prediction import Outcome
from randomset.models.calibration_error import reliability_diagram
from randomset.models.threshold import Threshold

__all__ = [
    "RANKS",
    "conformal_section",
    "decisions_section",
    "ood_section",
    "reliability_section",
    "scaled_section",
    "selective_section",
    "test_section",
    "threshold_section",
]

RANKS = "rank average"
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def test_section(tested: Outcome, bins: int) -> dict[str, Any]:
    """Accuracy, calibration and scores on test data."""
    p, labels = tested.prediction.probabilities, _labels(tested)
    right = tested.prediction.labels == labels
    negative = tested.prediction.negative
    diagram = reliability_diagram(tested.prediction.confidence, right, bins)
    return {
        "samples": len(tested),
        "accuracy": top_accuracy(p, labels),
        "top_5_accuracy": top_accuracy(p, labels, 5),
        "balanced_accuracy": balanced_accuracy(p, labels),
        "nll": negative_log_likelihood(p, labels),
        "brier": brier_score(p, labels),
        "ece": diagram.error,
        "ece_equal_mass": calibration_error(p, labels, bins, "mass"),
        "classwise_ece": classwise_calibration_error(p, labels, bins).mean().item(),
        "confidence": tested.prediction.confidence.double().mean().item(),
        **({} if negative is None else {"negative_mass": negative.double().mean().item()}),
        "reliability": {
            name: getattr(diagram, name).tolist() for name in ("edges", "count", "confidence", "accuracy")
        },
        "scores": {name: _moments(values) for name, values in tested.prediction.scores.items()},
    }


def scaled_section(tested: Outcome, held: Outcome, bins: int) -> dict[str, float]:
    """NLL and ECE after temperature scaling of the probabilities, fitted on validation data."""
    temperature = fitted_temperature(held.prediction.probabilities, _labels(held))
    p, labels = tempered(tested.prediction.probabilities, temperature), _labels(tested)
    return {
        "temperature": temperature,
        "nll": negative_log_likelihood(p, labels),
        "ece": calibration_error(p, labels, bins),
    }


def ood_section(tested: Outcome, others: dict[str, Outcome], held: Outcome | None) -> dict[str, Any]:
    """Out-of-distribution detection by every score; ranks are relative to the validation inputs."""
    reference = (held or tested).prediction.scores
    known = {**tested.prediction.scores, RANKS: rank_average(reference, tested.prediction.scores)}
    section = {}
    for name, other in others.items():
        scores = {**other.prediction.scores, RANKS: rank_average(reference, other.prediction.scores)}
        measured = {}
        for score, values in scores.items():
            numbers = dataclasses.asdict(detection(known[score], values))
            moments = {
                key: dict(zip(("mean", "std"), numbers[key], strict=True)) for key in ("known", "unknown")
            }
            measured[score] = {**numbers, **moments}
        section[name] = {"samples": len(other), "scores": measured}
    return section


def reliability_section(tested: Outcome, others: dict[str, Outcome]) -> dict[str, Any]:
    """Distribution of the reliability of test and unknown inputs; empty for a model without one."""
    section = {}
    for outcome in (tested, *others.values()):
        if (reliability := outcome.prediction.reliability) is not None:
            values = reliability.double().numpy()
            quantiles = np.quantile(values, _QUANTILES).tolist()
            section[outcome.name] = {
                "samples": len(outcome),
                "mean": float(values.mean()),
                "quantiles": {f"{q:.0%}": value for q, value in zip(_QUANTILES, quantiles, strict=True)},
                "familiar": float((values >= FAMILIAR).mean()),
            }
    return section


def selective_section(tested: Outcome) -> dict[str, Any]:
    """Selective prediction by every score: accuracy when the most uncertain inputs are rejected."""
    right = tested.prediction.labels == _labels(tested)
    section = {}
    for name, values in tested.prediction.scores.items():
        curve = risk_coverage(values, right)
        accuracy = {f"{share:.0%}": value for share, value in curve.accuracy_at().items()}
        section[name] = {"aurc": curve.area, "accuracy_at": accuracy}
    return section


def decisions_section(tested: Outcome) -> dict[str, Any]:
    """Evaluate set-valued decisions by interval dominance: all classes that could be the most likely one."""
    lower, upper = tested.prediction.lower, tested.prediction.upper
    assert lower is not None
    assert upper is not None
    sets = upper >= lower.amax(1, keepdim=True)
    return {"interval dominance": _of_sets(sets, _labels(tested))}


def _of_sets(sets: Tensor, labels: Tensor) -> dict[str, float]:
    size = sets.sum(1).double()
    single = size == 1
    hit = sets.gather(1, labels[:, None]).squeeze(1).double()
    return {
        "coverage": hit.mean().item(),
        "size": size.mean().item(),
        "single": single.double().mean().item(),
        "single_accuracy": hit[single].mean().item() if single.any() else float("nan"),
        "u65": utility(sets, labels, "u65").double().mean().item(),
        "u80": utility(sets, labels, "u80").double().mean().item(),
    }


def threshold_section(
    threshold: Threshold, tested: Outcome, others: dict[str, Outcome], held: Outcome | None
) -> dict[str, Any]:
    """Effect of a threshold on test inputs and on out-of-distribution inputs."""
    known = threshold.known_by(tested.prediction.scores)
    right = (tested.prediction.labels == _labels(tested)).double()
    return {
        **dataclasses.asdict(threshold),
        "kept": known.double().mean().item(),
        "accuracy_of_kept": right[known].mean().item() if known.any() else float("nan"),
        "detected": {
            name: (~threshold.known_by(other.prediction.scores)).double().mean().item()
            for name, other in others.items()
        },
        "validation_samples": None if held is None else len(held),
    }


def conformal_section(calibration: Outcome, tested: Outcome, alpha: float, seed: int) -> dict[str, Any]:
    """Coverage and size of conformal sets for every applicable score, marginal and class-conditional."""
    rows = []
    bounded = tested.prediction.lower is not None
    for score in SCORES:
        if score in ("1 - Pl", "1 - Bel") and not bounded:
            continue
        for by_class in (False, True):
            conformal = Conformal(
                calibration.prediction, _labels(calibration), score=score, by_class=by_class, seed=seed
            )
            sets = conformal.sets(tested.prediction, alpha)
            result = Conformal.measure(sets, _labels(tested))
            rows.append(
                {
                    "score": score,
                    "by_class": by_class,
                    "coverage": result.coverage,
                    "size": result.size,
                    "empty": result.empty,
                    "class_coverage": _plain(result.by_class),
                    "class_size": _plain(result.size_by_class),
                    "u65": utility(sets, _labels(tested), "u65").double().mean().item(),
                    "u80": utility(sets, _labels(tested), "u80").double().mean().item(),
                }
            )
    return {"alpha": alpha, "samples": len(calibration), "rows": rows}


def _plain(values: Tensor) -> list[float | None]:
    """Convert to a list with None for NaN, which JSON does not support."""
    return [None if value != value else value for value in values.tolist()]


def _labels(outcome: Outcome) -> Tensor:
    assert outcome.labels is not None
    return outcome.labels


def _moments(values: Tensor) -> dict[str, float]:
    return {"mean": values.double().mean().item(), "std": values.double().std(correction=0).item()}
