"""Whether the confidence of a model matches its accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

from randomset.evaluation.accuracy import check_labels
from randomset.models.calibration_error import Bins, reliability_diagram
from randomset.models.softmax import softmax_temperature

__all__ = ["calibration_error", "classwise_calibration_error", "fitted_temperature", "tempered"]

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
