"""Noise and rotation at every level, and attacks on models whose outcome is known."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from randomset import Budget, RandomSetLoss, RandomSetNetwork
from randomset.data.corruptions import gaussian_noise
from randomset.errors import RandomSetError, ShapeError
from randomset.evaluation import as_predictor, evaluate
from randomset.evaluation.attacks import fgsm, pgd
from randomset.evaluation.robustness import (
    attack_rows,
    belief_objective,
    corruption_rows,
    logit_objective,
    measured,
    pixels_of,
)
from tests.evaluation.conftest import PIXELS, SIDES, WEIGHT, image_network, linear


@pytest.mark.slow
class TestResult:
    def test_attacks_of_no_size_change_nothing(self, result):
        clean = next(row["accuracy"] for row in result["attacks"] if row["attack"] == "none")
        rows = [row for row in result["attacks"] if row["epsilon"] == 0 and row["attack"] != "none"]
        assert len(rows) == 7
        assert {row["accuracy"] for row in rows} == {clean}
        worst = {
            row["epsilon"]: row["accuracy"] for row in result["attacks"] if row["attack"] == "all of them"
        }
        each = [row["accuracy"] for row in result["attacks"] if row["epsilon"] == 0.05]
        assert worst[0.05] <= min(each)

    def test_levels(self, result):
        assert [row["level"] for row in result["noise"]] == [None, 0.3]
        assert [row["level"] for row in result["rotation"]] == [None, [-30, 30]]
        assert result["noise"][0] == result["rotation"][0]


class TestTable:
    """attack_rows on models with a known outcome."""

    images = PIXELS.reshape(-1, 1, 3, 4)

    def model(self):
        layer = nn.Linear(12, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.stack((-WEIGHT, WEIGHT)))
            layer.bias.copy_((PIXELS @ WEIGHT).median() * torch.tensor([1.0, -1.0]))
        return nn.Sequential(nn.Flatten(), layer)

    def expected(self, epsilon):
        margin = (2.0 * SIDES - 1) * (PIXELS @ WEIGHT - (PIXELS @ WEIGHT).median())
        return (margin > epsilon * WEIGHT.abs().sum()).float().mean().item()

    def test_of_a_linear_softmax_model(self):
        rows = attack_rows(self.model(), self.images, SIDES, (0.02,), surrogate=self.model(), progress=False)
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

    def test_a_surrogate_keeps_its_mode_and_attacks_without_dropout(self):
        modes = []

        class Watching(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                modes.append(self.training)
                return self.inner(x)

        surrogate = Watching(self.model()).train()
        attack_rows(
            self.model(),
            self.images,
            SIDES,
            (0.02,),
            surrogate=surrogate,
            steps=2,
            restarts=1,
            progress=False,
        )
        assert surrogate.training
        assert modes
        assert not any(modes)

    def test_bytes_are_pixels(self):
        as_bytes = (self.images * 255).round().to(torch.uint8)
        rows = attack_rows(self.model(), as_bytes, SIDES, (0.02,), progress=False)
        assert rows[1]["accuracy"] == pytest.approx(self.expected(0.02), abs=0.02)

    @pytest.mark.slow
    def test_autoattack_finds_the_best_attack(self):
        pytest.importorskip("pyautoattack")
        with pytest.raises(RandomSetError, match="four classes; got 2"):
            attack_rows(self.model(), self.images, SIDES, (), auto=(0.02,), progress=False)
        model = nn.Sequential(self.model(), _MoreClasses())
        rows = attack_rows(model, self.images[:60], SIDES[:60], (), auto=(0.02,), progress=False)
        margin = ((2.0 * SIDES - 1) * (PIXELS @ WEIGHT - (PIXELS @ WEIGHT).median()))[:60]
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
        found = objective(self.images[:9], SIDES[:9])
        for place in range(9):
            logits = network(self.images[place : place + 1])
            loss = RandomSetLoss(network.budget)(logits, SIDES[place : place + 1])
            assert found[place].item() == pytest.approx(loss.item(), rel=1e-5)

    def test_a_clipped_loss_of_a_confident_network_is_flat(self):
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
            attack_rows(linear, self.images, SIDES)
        with pytest.raises(ShapeError, match=r"pixels in \[0, 1\]"):
            attack_rows(self.model(), self.images * 3, SIDES)


class _MoreClasses(nn.Module):
    def forward(self, logits):
        return nn.functional.pad(logits, (0, 2), value=-1e4)


class TestNames:
    def test_names_hold_for_changed_images_too(self):
        """Noise of no size: the accuracy is that of the test, in whatever order the classes are named."""

        class Named(TensorDataset):
            classes = ("dark", "bright")

        images = torch.cat((torch.full((30, 1, 4, 4), 0.2), torch.full((30, 1, 4, 4), 0.8)))
        images += 0.01 * torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(60) // 30
        by_brightness = lambda x: torch.stack((x.mean((1, 2, 3)), 1 - x.mean((1, 2, 3))), 1)  # noqa: E731
        result = evaluate(by_brightness, Named(images, labels), classes=("bright", "dark"), noise=(1e-6,))
        assert result["test"]["accuracy"] == 1
        assert [row["accuracy"] for row in result["noise"]] == [1, 1]


class TestRows:
    def test_no_change_is_the_first_row(self):
        images, labels = torch.rand(40, 1, 8, 8), torch.arange(40) % 10
        predictor = as_predictor(image_network())
        rows = corruption_rows(predictor, images, labels, (0.2, 0.4), (), batch_size=16, progress=False)
        assert list(rows) == ["noise"]
        assert [row.pop("level") for row in rows["noise"]] == [None, 0.2, 0.4]
        expected = measured(predictor, images, labels)
        assert rows["noise"][0] == pytest.approx(expected, rel=1e-4)
        changed = measured(predictor, gaussian_noise(images, 0.2, seed=0), labels)
        assert rows["noise"][1] == pytest.approx(changed, rel=1e-4)

    def test_bytes_are_pixels(self):
        as_bytes = torch.randint(0, 256, (5, 1, 4, 4), dtype=torch.uint8)
        assert torch.equal(pixels_of(as_bytes), as_bytes / 255)
        for wrong in (as_bytes.float(), torch.rand(5, 4), as_bytes.long()):
            with pytest.raises(ShapeError, match=r"pixels in \[0, 1\]"):
                pixels_of(wrong)
