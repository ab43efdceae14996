"""Evidential deep learning (Sensoy et al. 2018): outputs are the evidence for a Dirichlet distribution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Dirichlet, kl_divergence

from randomset._core.batches import call_with
from randomset.models.base import Classifier
from randomset.models.cross_entropy import weighted_mean
from randomset.models.prediction import Prediction
from randomset.models.storage import register

__all__ = ["Evidential"]

_KL_WEIGHT = 0.05


@register("evidential")
class Evidential(Classifier):
    """Evidence e = softplus(outputs), α = e + 1, p = α / Σα; the uncertainty is the vacuity N / Σα.

    The KL term on misleading evidence has a constant weight of 0.05. The original paper increases it to 1,
    which suppressed all evidence on short schedules.

    >>> model = Evidential(nn.Linear(4, 8), 3, in_features=8)
    >>> sorted(model.predict(torch.randn(5, 4)).scores)
    ['1 - maximum', 'entropy', 'vacuity']
    """

    def __init__(self, backbone: nn.Module, num_classes: Any, **options: Any) -> None:
        super().__init__(backbone, num_classes, **options)
        self.layer = nn.Linear(self.in_features, self.num_classes)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return α (B × N)."""
        return nn.functional.softplus(self.layer(self.features(*inputs, **named))) + 1

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return the mean of the Dirichlet."""
        outputs = outputs.float()
        return outputs / outputs.sum(-1, keepdim=True)

    def predict_batch(self, inputs: Any) -> Prediction:
        """Return the mean and the vacuity."""
        alpha = call_with(self, inputs)
        return Prediction(self.probabilities(alpha), {"vacuity": self.num_classes / alpha.float().sum(-1)})

    def default_loss(self) -> nn.Module:
        """Return the expected squared error plus the KL term on misleading evidence."""
        return _EvidentialLoss()


class _EvidentialLoss(nn.Module):
    """Mean of Σ_k (y_k − p_k)² + p_k (1 − p_k)/(S + 1), plus λ · KL(Dir(β) ‖ Dir(1)), β = y + (1 − y) α."""

    def forward(self, alpha: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        target = (nn.functional.one_hot(labels, alpha.shape[1]) if labels.dim() == 1 else labels).to(alpha)
        total = alpha.sum(1, keepdim=True)
        p = alpha / total
        error = ((target - p) ** 2 + p * (1 - p) / (total + 1)).sum(1)
        beta = target + (1 - target) * alpha
        misleading = kl_divergence(Dirichlet(beta), Dirichlet(torch.ones_like(beta)))
        return weighted_mean(error + _KL_WEIGHT * misleading, weight)
