"""Whether a model is as sure as it is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from randomset.errors import RandomSetError
from randomset.evaluation.accuracy import check_labels
from randomset.models.softmax import likeliest_temperature

__all__ = [
    "Reliability",
    "calibration_error",
    "classwise_calibration_error",
    "fitted_temperature",
    "reliability",
    "tempered",
]

Bins = Literal["width", "mass"]
_ROWS = 4096  # that are looked at at a time


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram: for each bin its edges, how many fell into it, mean confidence and accuracy."""

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def error(self) -> float:
        """The expected calibration error, Σ_b n_b/n · |accuracy_b − confidence_b|."""
        gap = (self.accuracy - self.confidence).abs()
        return (gap * self.count / self.count.sum()).sum().item()


def reliability(confidence: Tensor, right: Tensor, bins: int = 15, by: Bins = "width") -> Reliability:
    """Sort predictions into bins of equal width, or of equal numbers ("mass"), by their confidence.

    >>> found = reliability(torch.tensor([0.55, 0.95, 0.95]), torch.tensor([True, True, False]), bins=2)
    >>> found.count, round(found.error, 4)
    (tensor([0, 3]), 0.15)
    """
    if bins < 1 or by not in ("width", "mass"):
        raise RandomSetError(
            "there are no such bins", got=f"{bins} by {by}", expected='1 or more, by "width" or "mass"'
        )
    confidence, right = confidence.double().contiguous(), right.double()
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.double)
    if by == "mass":
        edges = _even_edges(confidence, bins)
    place = torch.bucketize(confidence, edges[1:-1])
    count = torch.bincount(place, minlength=len(edges) - 1)

    def mean(values: Tensor) -> Tensor:
        total = torch.zeros(len(count), dtype=torch.double).index_add(0, place, values)
        return total / count.clamp_min(1)

    return Reliability(edges, count, mean(confidence), mean(right))


def tempered(probabilities: Tensor, temperature: float) -> Tensor:
    """Return p^(1/T), normalised: softer for T above one, sharper below.

    >>> tempered(torch.tensor([[0.8, 0.2]]), 2.0).round(decimals=4)
    tensor([[0.6667, 0.3333]], dtype=torch.float64)
    """
    return (probabilities.double().clamp_min(1e-12).log() / temperature).softmax(1)


def fitted_temperature(probabilities: Tensor, labels: Tensor) -> float:
    """Return the temperature at which the labels are likeliest; for validation data.

    >>> sure = torch.tensor([[0.99, 0.01]] * 4000)
    >>> round(fitted_temperature(sure, torch.tensor([0, 0, 0, 1] * 1000)), 1)  # p = 0.75 suits three of four
    4.1
    """
    check_labels(probabilities, labels)
    return likeliest_temperature(probabilities.double().clamp_min(1e-12).log(), labels)


def _even_edges(confidence: Tensor, bins: int) -> Tensor:
    """Cut between values so that bins hold about equally many; equal values stay together."""
    values, count = confidence.unique(return_counts=True)
    middle = (count.cumsum(0) - count / 2) / count.sum()
    group = (middle * bins).long().clamp_max(bins - 1)
    cuts = (group[1:] != group[:-1]).nonzero()[:, 0]
    return torch.cat((confidence.new_zeros(1), (values[cuts] + values[cuts + 1]) / 2, confidence.new_ones(1)))


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15, by: Bins = "width") -> float:
    """Expected calibration error of the most likely class (ECE).

    >>> round(calibration_error(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 4)
    0.3
    """
    check_labels(probabilities, labels)
    confidence, predicted = probabilities.max(1)
    return reliability(confidence, predicted == labels, bins, by).error


def classwise_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> Tensor:
    """Calibration error of each class's own probability, one against the rest (N).

    >>> classwise_calibration_error(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1]))
    tensor([0.3000, 0.3000], dtype=torch.float64)
    """
    check_labels(probabilities, labels)
    n, classes = probabilities.shape
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.double)
    # Of a bin, count · |accuracy − confidence| is the size of the sum of hits minus probabilities.
    gap = torch.zeros(classes, bins, dtype=torch.double)
    for start in range(0, n, _ROWS):
        p = probabilities[start : start + _ROWS].double()
        hit = torch.zeros_like(p).scatter(1, labels[start : start + _ROWS, None], 1.0)
        place = torch.bucketize(p, edges[1:-1]) + bins * torch.arange(classes)
        gap.view(-1).index_add_(0, place.flatten(), (hit - p).flatten())
    return gap.abs().sum(1) / n
