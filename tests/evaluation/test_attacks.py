"""Attacks: on a linear model the best one is known; elsewhere they stay within their bounds."""

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetLoss, RandomSetNetwork
from randomset.errors import RandomSetError, ShapeError
from randomset.evaluation.attacks import cross_entropy_objective, fgsm, margin_objective, pgd
from randomset.evaluation.robustness import attack_rows, belief_objective, logit_objective

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(12, generator=GENERATOR)
X = 0.3 + 0.4 * torch.rand(300, 12, generator=GENERATOR)  # so that no pixel reaches its limits
Y = ((X @ WEIGHT).median() < X @ WEIGHT).long()


def linear(x):
    score = (x @ WEIGHT - (X @ WEIGHT).median()).to(x)
    return torch.stack((-score, score), 1)


def accuracy(inputs):
    return (linear(inputs).argmax(1) == Y).float().mean().item()


@pytest.mark.parametrize("objective", [cross_entropy_objective(linear), margin_objective(linear)])
@pytest.mark.parametrize("epsilon", [0.005, 0.02, 0.05])
def test_the_best_attack_on_a_linear_model(objective, epsilon):
    """The score of a sample can be moved by ε · Σ|w|, no more."""
    sign = 2.0 * Y - 1
    margin = sign * (X @ WEIGHT - (X @ WEIGHT).median())
    expected = (margin > epsilon * WEIGHT.abs().sum()).float().mean().item()
    assert accuracy(fgsm(objective, X, Y, epsilon)) == pytest.approx(expected, abs=1 / 300)
    attacked = pgd(objective, X, Y, epsilon, restarts=2)
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
        fgsm(objective, 255 * X, Y, 0.1)
    with pytest.raises(RandomSetError, match="negative"):
        fgsm(objective, X, Y, -0.1)
    with pytest.raises(RandomSetError, match="steps"):
        pgd(objective, X, Y, 0.1, steps=0)


class TestTable:
    """attack_rows on models of which the outcome is known."""

    images = X.reshape(-1, 1, 3, 4)

    def model(self):
        layer = nn.Linear(12, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.stack((-WEIGHT, WEIGHT)))
            layer.bias.copy_((X @ WEIGHT).median() * torch.tensor([1.0, -1.0]))
        return nn.Sequential(nn.Flatten(), layer)

    def expected(self, epsilon):
        margin = (2.0 * Y - 1) * (X @ WEIGHT - (X @ WEIGHT).median())
        return (margin > epsilon * WEIGHT.abs().sum()).float().mean().item()

    def test_of_a_linear_softmax_model(self):
        rows = attack_rows(self.model(), self.images, Y, (0.02,), surrogate=self.model(), progress=False)
        by_name = {row["attack"]: row["accuracy"] for row in rows}
        assert by_name.pop("none") == pytest.approx(1, abs=1 / 300)
        assert list(by_name) == [
            "FGSM, own loss",
            "PGD, own loss",
            "PGD, margin",
            "transfer of PGD from a softmax twin",
            "all of them",
        ]
        for name, value in by_name.items():
            assert value == pytest.approx(self.expected(0.02), abs=2 / 300), name

    def test_a_twin_keeps_its_mode_and_attacks_without_dropout(self):
        modes = []

        class Watching(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                modes.append(self.training)
                return self.inner(x)

        twin = Watching(self.model()).train()
        attack_rows(
            self.model(), self.images, Y, (0.02,), surrogate=twin, steps=2, restarts=1, progress=False
        )
        assert twin.training
        assert modes
        assert not any(modes)

    def test_bytes_are_pixels(self):
        as_bytes = (self.images * 255).round().to(torch.uint8)
        rows = attack_rows(self.model(), as_bytes, Y, (0.02,), progress=False)
        assert rows[1]["accuracy"] == pytest.approx(self.expected(0.02), abs=0.02)

    @pytest.mark.slow
    def test_autoattack_finds_the_best_attack(self):
        pytest.importorskip("pyautoattack")
        with pytest.raises(RandomSetError, match="four classes; got 2"):
            attack_rows(self.model(), self.images, Y, (), auto=(0.02,), progress=False)
        model = nn.Sequential(self.model(), _MoreClasses())
        rows = attack_rows(model, self.images[:60], Y[:60], (), auto=(0.02,), progress=False)
        margin = ((2.0 * Y - 1) * (X @ WEIGHT - (X @ WEIGHT).median()))[:60]
        expected = (margin > 0.02 * WEIGHT.abs().sum()).float().mean().item()
        assert rows[1]["attack"] == "AutoAttack on log BetP"
        assert rows[1]["accuracy"] == pytest.approx(expected, abs=1.5 / 60)

    def network(self):
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU())
        return RandomSetNetwork(backbone, Budget.from_sets([{0, 1}], 3), in_features=16).eval()

    def test_the_own_loss_is_the_training_loss_of_one_sample(self):
        network = self.network()
        objective = belief_objective(network)
        found = objective(self.images[:9], Y[:9])
        for place in range(9):
            logits = network(self.images[place : place + 1])
            loss = RandomSetLoss(network.budget)(logits, Y[place : place + 1])
            assert found[place].item() == pytest.approx(loss.item(), rel=1e-5)

    def test_a_clipped_loss_of_a_sure_network_is_flat(self):
        """Which hides where to go, and protects nothing: the logits tell."""
        network = self.network()
        nn.init.normal_(network.head.layers[-1].weight, std=300.0)
        labels = network.predict(self.images).labels
        clipped = belief_objective(network, alpha=0, beta=0, clip=1e-7)
        still = fgsm(clipped, self.images, labels, 0.05)
        unmoved = (still == self.images).flatten(1).all(1)
        assert unmoved.float().mean() > 0.5
        moved = pgd(logit_objective(network), self.images, labels, 0.05)
        before = logit_objective(network)(self.images, labels)
        assert (logit_objective(network)(moved, labels) >= before).all()
        assert ((moved != self.images).flatten(1).any(1)).all()

    def test_only_modules_and_pixels(self):
        with pytest.raises(RandomSetError, match="gradients"):
            attack_rows(linear, self.images, Y)
        with pytest.raises(ShapeError, match=r"pixels in \[0, 1\]"):
            attack_rows(self.model(), self.images * 3, Y)


class _MoreClasses(nn.Module):
    def forward(self, logits):
        return nn.functional.pad(logits, (0, 2), value=-1e4)
