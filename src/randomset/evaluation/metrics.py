"""Metrics: accuracy, calibration, detection of unknown inputs, selective prediction, and prediction time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset.errors import LabelError, RandomSetError
from randomset.evaluation.predictor import Predictor, as_predictor, softmax_predictor
from randomset.models.base import Classifier
from randomset.models.prediction import Bins, reliability_diagram
from randomset.models.softmax import softmax_temperature

__all__ = [
    "Detection",
    "RiskCoverage",
    "balanced_accuracy",
    "brier_score",
    "calibration_error",
    "check_labels",
    "classwise_calibration_error",
    "detection",
    "fitted_temperature",
    "in_turns",
    "measure_time",
    "negative_log_likelihood",
    "rank_average",
    "risk_coverage",
    "tempered",
    "top_accuracy",
]


def top_accuracy(probabilities: Tensor, labels: Tensor, k: int = 1) -> float:
    """Fraction of samples whose label is among the k most likely classes.

    >>> top_accuracy(torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]), torch.tensor([1, 2]), k=2)
    1.0
    """
    check_labels(probabilities, labels)
    if k == 1:  # argmax breaks ties in the same way as everywhere else
        return (probabilities.argmax(1) == labels).double().mean().item()
    best = probabilities.topk(min(k, probabilities.shape[1]), dim=1).indices
    return (best == labels[:, None]).any(1).double().mean().item()


def balanced_accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Mean recall over the classes that occur.

    >>> balanced_accuracy(torch.tensor([[0.9, 0.1]] * 4), torch.tensor([0, 0, 0, 1]))
    0.5
    """
    check_labels(probabilities, labels)
    n = probabilities.shape[1]
    right = (probabilities.argmax(1) == labels).double()
    count = torch.bincount(labels, minlength=n)
    hits = torch.zeros(n, dtype=torch.double).index_add(0, labels, right)
    return (hits[count > 0] / count[count > 0]).mean().item()


def negative_log_likelihood(probabilities: Tensor, labels: Tensor) -> float:
    """Mean of −ln p(label), in nats; probabilities below 1e-12 count as 1e-12.

    >>> round(negative_log_likelihood(torch.tensor([[0.5, 0.5]]), torch.tensor([0])), 4)
    0.6931
    """
    check_labels(probabilities, labels)
    hit = probabilities.double().gather(1, labels[:, None])
    return -hit.clamp_min(1e-12).log().mean().item()


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    """Mean of Σ_c (p(c) − [c is the label])², from 0 to 2.

    >>> round(brier_score(torch.tensor([[0.8, 0.2]]), torch.tensor([0])), 4)
    0.08
    """
    check_labels(probabilities, labels)
    target = torch.nn.functional.one_hot(labels, probabilities.shape[1])
    return ((probabilities.double() - target) ** 2).sum(1).mean().item()


def check_labels(probabilities: Tensor, labels: Tensor) -> None:
    """Raise LabelError if the labels do not match the predictions."""
    n = probabilities.shape[1]
    if labels.shape != probabilities.shape[:1] or labels.is_floating_point():
        raise LabelError(
            "labels do not match the predictions",
            got=f"{labels.dtype} {tuple(labels.shape)} for {tuple(probabilities.shape)}",
            expected="one class index per prediction",
        )
    if not len(labels):
        raise LabelError("no predictions to evaluate", got="no predictions")
    if not 0 <= int(labels.min()) <= int(labels.max()) < n:
        place = int(((labels < 0) | (labels >= n)).nonzero()[0])
        raise LabelError(
            "label out of range", got=f"{int(labels[place])} at row {place}", expected=f"0 to {n - 1}"
        )


_ROWS = 4096  # processed at a time, to bound memory


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    """Return p^(1/T), normalised: softer for T > 1, sharper for T < 1.

    >>> tempered(torch.tensor([[0.8, 0.2]]), 2.0).round(decimals=4)
    tensor([[0.6667, 0.3333]], dtype=torch.float64)
    """
    return (probabilities.double().clamp_min(1e-12).log() / temperature).softmax(1)


def fitted_temperature(probabilities: Tensor, labels: Tensor) -> float:
    """Return the temperature that maximises the likelihood of validation labels.

    >>> sure = torch.tensor([[0.99, 0.01]] * 4000)
    >>> round(fitted_temperature(sure, torch.tensor([0, 0, 0, 1] * 1000)), 1)  # 3 of 4 are correct: p = 0.75
    4.1
    """
    check_labels(probabilities, labels)
    return softmax_temperature(probabilities.double().clamp_min(1e-12).log(), labels)


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15, by: Bins = "width") -> float:
    """Expected calibration error of the most likely class (ECE).

    >>> round(calibration_error(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 4)
    0.3
    """
    check_labels(probabilities, labels)
    confidence, predicted = probabilities.max(1)
    return reliability_diagram(confidence, predicted == labels, bins, by).error


def classwise_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Calibration error of each class's probability, one versus rest (N).

    >>> classwise_calibration_error(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1]))
    tensor([0.3000, 0.3000], dtype=torch.float64)
    """
    check_labels(probabilities, labels)
    n, classes = probabilities.shape
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.double)
    # In each bin, count · |accuracy − confidence| = |Σ (hit − probability)|.
    gap = torch.zeros(classes, bins, dtype=torch.double)
    for start in range(0, n, _ROWS):
        p = probabilities[start : start + _ROWS].double()
        hit = torch.zeros_like(p).scatter(1, labels[start : start + _ROWS, None], 1.0)
        place = torch.bucketize(p, edges[1:-1]) + bins * torch.arange(classes)
        gap.view(-1).index_add_(0, place.flatten(), (hit - p).flatten())
    return gap.abs().sum(1) / n


@dataclass(frozen=True)
class Detection:
    """How well a score separates unknown inputs (the positive class) from known ones.

    auroc: probability that an unknown input scores higher than a known one
    auprc: average precision with unknown as the positive class; `auprc_known` with known as positive
    fpr95: false positive rate at a true positive rate of 95 %
    error: detection error, the smallest mean of false positive and false negative rate over all thresholds
    """

    auroc: float
    auprc: float
    auprc_known: float
    fpr95: float
    error: float
    known: tuple[float, float]
    """Mean and standard deviation of the score on known inputs."""
    unknown: tuple[float, float]


def detection(known: Tensor, unknown: Tensor) -> Detection:
    """Evaluate a score (higher means more uncertain) on known (n) and unknown (m) inputs.

    >>> result = detection(torch.tensor([0.1, 0.2, 0.4]), torch.tensor([0.3, 0.9]))
    >>> round(result.auroc, 4), round(result.fpr95, 4)
    (0.8333, 0.3333)
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    for name, score in (("known", known), ("unknown", unknown)):
        if score.dim() != 1 or not len(score) or not score.isfinite().all():
            raise RandomSetError(
                f"invalid scores of the {name} inputs",
                got=f"shape {tuple(score.shape)}",
                expected="a non-empty 1-D tensor of finite numbers",
            )
    both = torch.cat((known, unknown)).double().numpy()
    target = np.r_[np.zeros(len(known)), np.ones(len(unknown))]
    false, true, _ = roc_curve(target, both, drop_intermediate=False)
    return Detection(
        auroc=float(roc_auc_score(target, both)),
        auprc=float(average_precision_score(target, both)),
        auprc_known=float(average_precision_score(1 - target, -both)),
        fpr95=float(false[true >= 0.95].min()),
        error=float(((false + 1 - true) / 2).min()),
        known=_moments(known),
        unknown=_moments(unknown),
    )


def rank_average(known: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    """Average several scores by their ranks among known inputs: (n) each → (m), in [0, 1].

    Each score is replaced by the fraction of known (validation) inputs below it, so scales do not matter.

    >>> rank_average({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([10.0, 20.0])},
    ...              {"a": torch.tensor([1.5]), "b": torch.tensor([30.0])})
    tensor([0.7500], dtype=torch.float64)
    """
    shares = []
    for name, reference in known.items():
        ordered = reference.double().sort().values
        low = torch.searchsorted(ordered, other[name].double())
        high = torch.searchsorted(ordered, other[name].double(), right=True)
        shares.append((low + high) / (2 * len(ordered)))
    return torch.stack(shares).double().mean(0)


def _moments(score: Tensor) -> tuple[float, float]:
    return float(score.double().mean()), float(score.double().std(correction=0))


@dataclass(frozen=True)
class RiskCoverage:
    """The risk–coverage curve: error rate (`risk`) among the most certain fraction of inputs (`coverage`)."""

    coverage: Tensor
    risk: Tensor

    @property
    def area(self) -> float:
        """Area under the risk–coverage curve (AURC)."""
        return self.risk.mean().item()

    def accuracy_at(self, shares: Sequence[float] = (0.9, 0.95, 0.99)) -> dict[float, float]:
        """Accuracy among the most certain fraction of inputs, for each coverage."""
        n = len(self.risk)
        return {share: 1 - self.risk[max(round(share * n), 1) - 1].item() for share in shares}


def risk_coverage(score: Tensor, right: Tensor) -> RiskCoverage:
    """Compute the risk–coverage curve of an uncertainty score (n) and correctness (n).

    Inputs with equal scores count with the mean error of their group, so that the curve does not depend on
    their order.

    >>> risk_coverage(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([True, True, False])).risk
    tensor([0.0000, 0.0000, 0.3333], dtype=torch.float64)
    """
    if score.shape != right.shape or score.dim() != 1 or not len(score):
        raise RandomSetError(
            "scores and correctness have different shapes, or are empty",
            got=f"{tuple(score.shape)} and {tuple(right.shape)}",
        )
    _, group, count = score.double().unique(return_inverse=True, return_counts=True)
    wrong = torch.zeros(len(count), dtype=torch.double).index_add(0, group, 1 - right.double()) / count
    each = wrong[group.sort().values]
    place = torch.arange(1, len(score) + 1, dtype=torch.double)
    return RiskCoverage(place / len(score), each.cumsum(0) / place)


def measure_time(
    model: Any, inputs: Tensor, *, repeats: int = 20, warm_up: int = 3, batch_size: int = 256
) -> dict[str, Any]:
    """Measure the time of predictions with all uncertainty scores, for single inputs and for a batch.

    Returns medians and quartiles: `latency_ms` of a single input, `throughput` in inputs per second and, for
    a `RandomSetNetwork`, the time relative to a softmax model with the same backbone, `ratio_single` and
    `ratio_batch`. Calls to the two models alternate, so that other load affects both equally.
    """
    if repeats < 1 or warm_up < 0 or not len(inputs):
        raise RandomSetError("nothing to time", got=f"{repeats} repeats of {len(inputs)} inputs")
    models, many = {"own": as_predictor(model)}, inputs[:batch_size]
    plain = model.softmax_counterpart() if isinstance(model, Classifier) else None
    if plain is not None:
        models["softmax"] = softmax_predictor(plain)
    single, batch = (_seconds(models, part, repeats, warm_up) for part in (inputs[:1], many))
    measured: dict[str, Any] = {
        "batch_size": len(many),
        "repeats": repeats,
        "latency_ms": _quartiles(1e3 * single["own"]),
        "throughput": _quartiles(len(many) / batch["own"]),
    }
    if plain is not None:
        measured["ratio_single"] = _quartiles(single["own"] / single["softmax"])
        measured["ratio_batch"] = _quartiles(batch["own"] / batch["softmax"])
    return measured


def in_turns(models: Mapping[str, Any], one: Tensor, rounds: int = 30) -> dict[str, float]:
    """Return the median time of a single prediction in milliseconds for several models.

    Calls to the models alternate, so that other load affects all of them equally.
    """
    predictors = {name: as_predictor(model) for name, model in models.items()}
    times = _seconds(predictors, one, rounds, warm_up=3)
    return {name: 1e3 * float(np.median(each)) for name, each in times.items()}


def _seconds(
    predictors: Mapping[str, Predictor], batch: Tensor, repeats: int, warm_up: int
) -> dict[str, NDArray[np.float64]]:
    """Return the seconds that each predictor takes for a batch; calls to them alternate."""
    times = {name: np.empty(repeats) for name in predictors}
    for turn in range(-warm_up, repeats):
        for name, predictor in predictors.items():
            start = time.perf_counter()
            predictor(batch)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn >= 0:
                times[name][turn] = time.perf_counter() - start
    return times


def _quartiles(values: Any) -> dict[str, float]:
    low, middle, high = np.percentile(values, (25, 50, 75))
    return {"median": float(middle), "low": float(low), "high": float(high)}
