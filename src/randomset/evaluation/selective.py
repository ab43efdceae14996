"""Selective prediction: how the error falls when the least sure predictions are left to somebody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from randomset.errors import RandomSetError

__all__ = ["RiskCoverage", "risk_coverage"]


@dataclass(frozen=True)
class RiskCoverage:
    """The risk–coverage curve: of the surest share of inputs (`coverage`), how many are wrong (`risk`)."""

    coverage: Tensor
    risk: Tensor

    @property
    def area(self) -> float:
        """AURC, the mean risk over all coverages."""
        return self.risk.mean().item()

    def accuracy_at(self, shares: Sequence[float] = (0.9, 0.95, 0.99)) -> dict[float, float]:
        """Accuracy among the surest share of inputs."""
        n = len(self.risk)
        return {share: 1 - self.risk[max(round(share * n), 1) - 1].item() for share in shares}


def risk_coverage(score: Tensor, right: Tensor) -> RiskCoverage:
    """Sort inputs by a score of uncertainty and measure the error of the surest first (n each).

    Inputs with equal scores are answered together: each counts with the mean error of its group, so that the
    curve does not depend on their order.

    >>> risk_coverage(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([True, True, False])).risk
    tensor([0.0000, 0.0000, 0.3333], dtype=torch.float64)
    """
    if score.shape != right.shape or score.dim() != 1 or not len(score):
        raise RandomSetError(
            "scores and outcomes do not match", got=f"{tuple(score.shape)} and {tuple(right.shape)}"
        )
    _, group, count = score.double().unique(return_inverse=True, return_counts=True)
    wrong = torch.zeros(len(count), dtype=torch.double).index_add(0, group, 1 - right.double()) / count
    each = wrong[group.sort().values]
    place = torch.arange(1, len(score) + 1, dtype=torch.double)
    return RiskCoverage(place / len(score), each.cumsum(0) / place)
