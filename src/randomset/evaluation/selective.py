"""Selective prediction: error as a function of coverage when the most uncertain inputs are rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from randomset.errors import RandomSetError

__all__ = ["RiskCoverage", "risk_coverage"]


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
