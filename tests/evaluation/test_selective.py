"""Selective prediction: risk and coverage by definition."""

import pytest
import torch

from randomset.evaluation.selective import risk_coverage


class TestAbstention:
    def test_by_definition(self):
        generator = torch.Generator().manual_seed(0)
        score, right = torch.rand(50, generator=generator), torch.rand(50, generator=generator) < 0.7
        curve = risk_coverage(score, right)
        order = score.argsort()
        for n in (1, 10, 50):
            assert curve.risk[n - 1].item() == pytest.approx(1 - right[order[:n]].double().mean().item())
        assert curve.area == pytest.approx(curve.risk.mean().item())
        assert curve.accuracy_at([1.0]) == {1.0: pytest.approx(right.double().mean().item())}

    def test_the_order_of_ties_does_not_matter(self):
        right = torch.tensor([True, False, True, False])
        expected = risk_coverage(torch.zeros(4), right).risk
        assert expected.tolist() == [0.5] * 4
        assert torch.equal(risk_coverage(torch.zeros(4), right.flip(0)).risk, expected)
