"""Attacks: on a linear model the best one is known; elsewhere they stay within their bounds."""

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetLoss, RandomSetNetwork
from randomset.errors import RandomSetError, ShapeError
from randomset.evaluation.attacks import cross_entropy_objective, fgsm, margin_objective, pgd
from tests.evaluation.conftest import PIXELS, SIDES, WEIGHT, linear


def accuracy(inputs):
    return (linear(inputs).argmax(1) == SIDES).float().mean().item()


@pytest.mark.parametrize("objective", [cross_entropy_objective(linear), margin_objective(linear)])
@pytest.mark.parametrize("epsilon", [0.005, 0.02, 0.05])
def test_the_best_attack_on_a_linear_model(objective, epsilon):
    """The score of a sample can be moved by ε · Σ|w|, no more."""
    sign = 2.0 * SIDES - 1
    margin = sign * (PIXELS @ WEIGHT - (PIXELS @ WEIGHT).median())
    expected = (margin > epsilon * WEIGHT.abs().sum()).float().mean().item()
    assert accuracy(fgsm(objective, PIXELS, SIDES, epsilon)) == pytest.approx(expected, abs=1 / 300)
    attacked = pgd(objective, PIXELS, SIDES, epsilon, restarts=2)
    assert accuracy(attacked) == pytest.approx(expected, abs=1 / 300)
    assert 0 < expected < 1


class TestBounds:
    network = RandomSetNetwork(
        nn.Sequential(nn.Linear(12, 16), nn.ReLU()), Budget.from_sets([{0, 1}], 3)
    ).eval()
    inputs = torch.rand(50, 12, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(50) % 3

    @pytest.mark.parametrize("epsilon", [0.0, 0.03, 0.5])
    def test_within_epsilon_and_within_pixels(self, epsilon):
        objective = cross_entropy_objective(self.network.as_logits())
        for attacked in (
            fgsm(objective, self.inputs, self.labels, epsilon),
            pgd(objective, self.inputs, self.labels, epsilon, restarts=2),
        ):
            assert (attacked - self.inputs).abs().max() <= epsilon + 1e-6
            assert 0 <= attacked.min() <= attacked.max() <= 1
            if epsilon == 0:
                assert torch.equal(attacked, self.inputs)

    def test_an_attack_never_helps(self):
        objective = margin_objective(self.network.as_logits())
        before = objective(self.inputs, self.labels)
        few = pgd(objective, self.inputs, self.labels, 0.1, restarts=1)
        many = pgd(objective, self.inputs, self.labels, 0.1, restarts=4)
        assert (objective(few, self.labels) >= before).all()
        assert objective(many, self.labels).mean() >= objective(few, self.labels).mean()

    def test_the_models_own_loss(self):
        loss = RandomSetLoss(self.network.budget)

        def own(inputs, labels):
            logits = self.network(inputs)
            return torch.stack([loss(logits[i : i + 1], labels[i : i + 1]) for i in range(len(logits))])

        attacked = pgd(own, self.inputs, self.labels, 0.1, steps=3)
        assert own(attacked, self.labels).mean() > own(self.inputs, self.labels).mean()

    def test_weights_get_no_gradient(self):
        fgsm(margin_objective(self.network.as_logits()), self.inputs, self.labels, 0.1)
        assert all(p.grad is None for p in self.network.parameters())


def test_mistakes():
    objective = margin_objective(linear)
    with pytest.raises(ShapeError, match="floats in"):
        fgsm(objective, 255 * PIXELS, SIDES, 0.1)
    with pytest.raises(RandomSetError, match="negative"):
        fgsm(objective, PIXELS, SIDES, -0.1)
    with pytest.raises(RandomSetError, match="steps"):
        pgd(objective, PIXELS, SIDES, 0.1, steps=0)
