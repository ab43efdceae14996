"""Evidential networks: the loss by hand, and vacuity."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.models.conftest import X, make


class TestEvidential:
    def test_the_loss_by_hand(self):
        """α = (3, 1, 1) for class 0: squares and variances, and no misleading evidence; for class 1 some."""
        loss, alpha = make("evidential").default_loss(), torch.tensor([[3.0, 1.0, 1.0]])
        p = np.array([0.6, 0.2, 0.2])
        variance = (p * (1 - p) / 6).sum()
        right = ((np.array([1, 0, 0]) - p) ** 2).sum() + variance
        assert loss(alpha, torch.tensor([0])).item() == pytest.approx(right, rel=1e-5)
        wrong = ((np.array([0, 1, 0]) - p) ** 2).sum() + variance
        dirichlet = torch.distributions.Dirichlet
        kl = torch.distributions.kl_divergence(dirichlet(alpha[0]), dirichlet(torch.ones(3))).item()
        assert loss(alpha, torch.tensor([1])).item() == pytest.approx(wrong + 0.05 * kl, rel=1e-5)

    def test_no_evidence_is_full_vacuity(self):
        model = make("evidential")
        nn.init.zeros_(model.layer.weight)
        nn.init.constant_(model.layer.bias, -50.0)
        found = model.predict(X)
        assert np.allclose(found.probabilities, 1 / 3)
        assert torch.allclose(found.scores["vacuity"], torch.ones(90))
