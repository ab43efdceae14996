"""The reliability diagram and the expected calibration error (ECE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from randomset.errors import RandomSetError

__all__ = ["Bins", "ReliabilityDiagram", "calibration_error", "calibration_gaps", "reliability_diagram"]

Bins = Literal["width", "mass"]
NUM_BINS = 15


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Bins of confidence: their edges, number of samples, mean confidence and accuracy."""

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def error(self) -> float:
        """The expected calibration error, Σ_b n_b/n · |accuracy_b − confidence_b|."""
        gap = (self.accuracy - self.confidence).abs()
        return (gap * self.count / self.count.sum()).sum().item()


def reliability_diagram(
    confidence: Tensor, correct: Tensor, bins: int = NUM_BINS, by: Bins = "width"
) -> ReliabilityDiagram:
    """Group predictions (n) by confidence into bins of equal width, or of equal counts ("mass").

    >>> confidence, correct = torch.tensor([0.55, 0.95, 0.95]), torch.tensor([True, True, False])
    >>> diagram = reliability_diagram(confidence, correct, bins=2)
    >>> diagram.count, round(diagram.error, 4)
    (tensor([0, 3]), 0.15)
    """
    if bins < 1 or by not in ("width", "mass"):
        raise RandomSetError(
            "invalid bins", got=f"{bins} by {by}", expected='1 or more, by "width" or "mass"'
        )
    confidence, correct = confidence.double().contiguous(), correct.double()
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.double)
    if by == "mass":
        edges = _even_edges(confidence, bins)
    bin_index = torch.bucketize(confidence, edges[1:-1])
    count = torch.bincount(bin_index, minlength=len(edges) - 1)

    def mean(values: Tensor) -> Tensor:
        total = torch.zeros(len(count), dtype=torch.double).index_add(0, bin_index, values)
        return total / count.clamp_min(1)

    return ReliabilityDiagram(edges, count, mean(confidence), mean(correct))


def calibration_gaps(confidence: Tensor, correct: Tensor, bins: int = NUM_BINS) -> Tensor:
    """Return Σ (correct − confidence) of each bin of equal width: (n), (n) → (bins).

    Sums of batches and processes add up; the ECE is Σ |gap| / n.
    """
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.double, device=confidence.device)
    bin_index = torch.bucketize(confidence.double().contiguous(), edges[1:-1])
    return edges.new_zeros(bins).index_add(0, bin_index, correct.double() - confidence.double())


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = NUM_BINS) -> float:
    """Expected calibration error over bins of equal width.

    >>> round(calibration_error(torch.tensor([0.8, 0.8]), torch.tensor([1.0, 0.0])), 4)
    0.3
    """
    return (calibration_gaps(confidence, correct, bins).abs().sum() / len(correct)).item()


def _even_edges(confidence: Tensor, bins: int) -> Tensor:
    """Return edges of bins with about equal counts; equal values share a bin."""
    values, count = confidence.unique(return_counts=True)
    middle = (count.cumsum(0) - count / 2) / count.sum()
    group = (middle * bins).long().clamp_max(bins - 1)
    cuts = (group[1:] != group[:-1]).nonzero()[:, 0]
    return torch.cat((confidence.new_zeros(1), (values[cuts] + values[cuts + 1]) / 2, confidence.new_ones(1)))
