"""The network: any backbone, frozen or not, prediction over anything that gives batches."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from randomset import Budget, RandomSet, RandomSetLoss, RandomSetNetwork, backbones
from randomset.backbones import Standardise
from randomset.errors import RandomSetError, ShapeError
from randomset.models import BeliefTemperature, PignisticTemperature
from randomset.training import fit
from tests.models.conftest import BUDGET, FEATURES, network


class TestForward:
    def test_logits_are_the_head_of_the_features(self):
        model = network(hidden=(6,)).eval()
        assert model(FEATURES).shape == (10, 5)
        assert torch.equal(model(FEATURES), model.head(model.features(FEATURES)))
        assert torch.equal(model.features(FEATURES), model.backbone(FEATURES))

    def test_maps_are_averaged_over_space_and_tokens_over_their_sequence(self):
        maps = RandomSetNetwork(nn.Conv2d(1, 6, 3), BUDGET)
        x = torch.randn(2, 1, 8, 8)
        assert torch.allclose(maps.features(x), maps.backbone(x).mean((2, 3)))
        tokens = RandomSetNetwork(nn.Embedding(50, 6), BUDGET, in_features=6)
        ids = torch.randint(50, (2, 7))
        assert torch.allclose(tokens.features(ids), tokens.backbone(ids).mean(1))

    def test_preprocessing_comes_first(self):
        model = network(preprocess=Standardise(torch.ones(4), torch.full((4,), 2.0))).eval()
        assert torch.allclose(model(FEATURES), model.head(model.backbone((FEATURES - 1) / 2)))

    def test_inputs_by_name(self):
        class TwoInputs(nn.Module):
            num_features = 4

            def forward(self, left, right):
                return left - right

        model = RandomSetNetwork(TwoInputs(), BUDGET)
        assert torch.equal(model(left=FEATURES, right=2 * FEATURES), model.head(-FEATURES))
        answer = model.predict({"left": FEATURES, "right": 2 * FEATURES, "labels": torch.zeros(10)})
        assert torch.equal(answer.mass, model.random_set(model.head(-FEATURES)).mass)

    @pytest.mark.parametrize(
        "backbone",
        [
            nn.Linear(4, 6),
            nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.1)),
            nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.GELU())),
            nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)),
        ],
        ids=lambda b: type(b[-1]).__name__ if isinstance(b, nn.Sequential) else "Linear",
    )
    def test_finds_the_width_of_its_backbone(self, backbone):
        assert RandomSetNetwork(backbone, BUDGET)(FEATURES).shape == (10, 5)

    def test_an_unknown_width_must_be_given(self):
        flattened = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
        with pytest.raises(RandomSetError, match="in_features"):
            RandomSetNetwork(flattened, BUDGET)
        assert RandomSetNetwork(flattened, BUDGET, in_features=72)(torch.zeros(1, 1, 8, 8)).shape == (1, 5)
        with pytest.raises(ShapeError, match=r"\(1, 72\).*70"):
            RandomSetNetwork(flattened, BUDGET, in_features=70)(torch.zeros(1, 1, 8, 8))

    def test_invalid_backbones(self):
        with pytest.raises(RandomSetError, match=r"must be a torch\.nn\.Module"):
            RandomSetNetwork("resnet", BUDGET)
        with pytest.raises(RandomSetError, match="does not return features"):
            RandomSetNetwork(_Wrapped(lambda x: {"a": x}), BUDGET, in_features=4)(FEATURES)


class _Wrapped(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class TestFreezing:
    def test_the_head_alone_is_trained(self):
        model = RandomSetNetwork(
            nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()), BUDGET, freeze_backbone=True
        )
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1.0)
        model.train()
        RandomSetLoss(BUDGET)(model(FEATURES), torch.arange(10) % 3).backward()
        optimiser.step()
        changed = {n for n, t in model.state_dict().items() if not torch.equal(t, before[n])}
        assert changed == {"head.layers.0.weight", "head.layers.0.bias"}  # no running statistics either

    def test_a_backbone_can_be_unfrozen(self):
        model = network(freeze_backbone=True).freeze_backbone(False)
        assert all(p.requires_grad for p in model.parameters())
        assert model.train().backbone.training

    def test_a_part_that_the_user_froze_stays_frozen(self):
        backbone = backbones.mlp(4, (8, 8))
        backbone.layers[1].requires_grad_(False)
        model = RandomSetNetwork(backbone, BUDGET)
        assert not model.backbone.layers[1].weight.requires_grad


class _Stream(IterableDataset):
    def __iter__(self):
        yield from FEATURES


class TestPredict:
    @pytest.fixture
    def model(self):
        return network().eval()

    @pytest.mark.parametrize(
        "inputs",
        [
            FEATURES,
            FEATURES.numpy(),
            FEATURES.numpy().astype(np.float64),
            TensorDataset(FEATURES),
            TensorDataset(FEATURES, torch.zeros(10)),
            DataLoader(TensorDataset(FEATURES, torch.zeros(10)), batch_size=4),
            DataLoader(_Stream(), batch_size=3),
            [FEATURES[:7], FEATURES[7:]],
            [(FEATURES[:7], None), (FEATURES[7:], None)],
            (part for part in FEATURES.split(4)),
        ],
        ids=lambda i: type(i).__name__,
    )
    def test_anything_that_gives_batches(self, model, inputs):
        expected = RandomSet.from_logits(model(FEATURES), BUDGET)
        answer = model.predict(inputs, batch_size=4)
        assert len(answer) == 10
        assert torch.allclose(answer.mass, expected.mass, atol=1e-6)

    def test_evaluation_mode_without_gradient_and_back(self, model):
        model.train()
        first, second = model.predict(FEATURES), model.predict(FEATURES)
        assert torch.equal(first.mass, second.mass)  # no dropout
        assert not first.mass.requires_grad
        assert model.training
        assert model.backbone.training

    def test_predictions_do_not_depend_on_the_batches(self, model):
        whole, parts = model.predict(FEATURES), model.predict(FEATURES, batch_size=3)
        assert torch.allclose(whole.mass, parts.mass, atol=1e-6)
        assert whole.validity.repaired.tolist() == parts.validity.repaired.tolist()

    def test_repair_is_passed_on(self, model):
        answer = model.predict(FEATURES, repair="projection")
        assert torch.allclose(answer.mass, RandomSet.from_logits(model(FEATURES), BUDGET, "projection").mass)

    @pytest.mark.parametrize("inputs", [FEATURES[:0], np.zeros((0, 4)), [], 3, torch.tensor(1.0)])
    def test_nothing_to_predict(self, model, inputs):
        with pytest.raises(ShapeError):
            model.predict(inputs)

    def test_bytes_go_through_the_preprocessing(self):
        model = RandomSetNetwork(
            backbones.small_cnn(3, 8), BUDGET, preprocess=Standardise([0.5] * 3, [0.25] * 3)
        )
        pixels = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
        expected = model.predict(pixels.float() / 255)
        assert torch.allclose(model.predict(pixels).mass, expected.mass, atol=1e-6)

    def test_double(self, model):
        assert model.double().predict(FEATURES).mass.dtype == torch.float64

    def test_progress_is_shown_for_several_batches(self, model, monkeypatch):
        asked = []

        @contextmanager
        def bar(description, total, shown):
            asked.append((description, total, shown))
            yield lambda amount: asked.append(amount)

        monkeypatch.setattr("randomset.models.base.progress_bar", bar)
        model.predict(FEATURES, batch_size=5)
        model.predict(FEATURES)
        assert asked == [("predicting", 2, None), 1, 1, ("predicting", 1, False), 1]

    def test_budgets_of_a_thousand_classes(self):
        sets = [{i, i + 1, i + 2} for i in range(0, 900)]
        model = RandomSetNetwork(nn.Linear(4, 8), Budget.from_sets(sets, 1000))
        assert model.predict(FEATURES).pignistic.sum(1).tolist() == pytest.approx([1.0] * 10, abs=1e-4)


class TestAsLogits:
    def test_softmax_gives_the_pignistic_probability(self):
        model = network().eval()
        logits = model.as_logits()(FEATURES)
        assert torch.allclose(logits.softmax(1), model.predict(FEATURES).pignistic, atol=1e-6)
        model.calibration = BeliefTemperature(3.0)
        assert torch.allclose(
            model.as_logits()(FEATURES).softmax(1), model.predict(FEATURES).pignistic, atol=1e-6
        )
        plain = model.as_logits(calibrated=False)(FEATURES).softmax(1)
        assert torch.allclose(plain, model.predict(FEATURES, calibrated=False).pignistic, atol=1e-6)

    def test_can_be_trained_by_cross_entropy(self):
        model = network()
        nn.functional.cross_entropy(model.as_logits()(FEATURES), torch.arange(10) % 3).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


class TestStates:
    """A state dict carries the calibration, or its absence, to another network."""

    @pytest.mark.parametrize(
        "calibration",
        [
            lambda: BeliefTemperature(2.5),
            lambda: BeliefTemperature([2.0, 3.0]),
            lambda: PignisticTemperature(1.7),
        ],
        ids=["belief", "belief per cardinality", "pignistic"],
    )
    @pytest.mark.parametrize(
        "previous",
        [None, lambda: BeliefTemperature(9.0), lambda: PignisticTemperature(9.0)],
        ids=["uncalibrated", "belief before", "pignistic before"],
    )
    def test_a_calibrated_network(self, calibration, previous):
        model, fresh = network().eval(), network().eval()
        model.calibration = calibration()
        fresh.calibration = None if previous is None else previous()
        with torch.no_grad():
            for tensor in fresh.parameters():
                tensor.add_(1.0)
        assert not torch.equal(fresh.predict(FEATURES).mass, model.predict(FEATURES).mass)
        assert str(fresh.load_state_dict(model.state_dict())) == "<All keys matched successfully>"
        assert torch.equal(fresh.predict(FEATURES).mass, model.predict(FEATURES).mass)
        assert type(fresh.calibration) is type(model.calibration)
        assert torch.equal(fresh.calibration.temperature, model.calibration.temperature)

    @pytest.mark.parametrize("calibration", [BeliefTemperature([2.0, 3.0]), PignisticTemperature(1.7)])
    def test_an_uncalibrated_state_drops_the_calibration(self, calibration):
        model, calibrated = network().eval(), network().eval()
        calibrated.calibration = calibration
        calibrated.load_state_dict(model.state_dict())
        assert calibrated.calibration is None
        assert torch.equal(calibrated.predict(FEATURES).mass, model.predict(FEATURES).mass)

    def test_within_another_module(self):
        model, fresh = nn.Sequential(network().eval()), nn.Sequential(network().eval())
        model[0].calibration = BeliefTemperature([2.0, 3.0])
        fresh.load_state_dict(model.state_dict())
        assert torch.equal(fresh[0].predict(FEATURES).mass, model[0].predict(FEATURES).mass)


class TwoEnds(nn.Module):
    """A backbone with an auxiliary output in training, as Inception has."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(4, 5)
        self.num_features, self.auxiliary_features = 6, 5

    def forward(self, inputs):
        main = self.first(inputs).relu()
        return (main, self.second(inputs).relu()) if self.training else main


class TestAuxiliary:
    BUDGET = Budget.from_sets([(0, 1)], 3)

    @pytest.mark.slow
    def test_both_ends_learn_and_one_predicts(self, tmp_path):
        torch.manual_seed(0)
        inputs, labels = torch.randn(90, 4), torch.arange(90) % 3
        inputs[torch.arange(90), labels] += 3
        network = RandomSetNetwork(TwoEnds(), self.BUDGET)
        before = network.auxiliary_head.layers[-1].weight.clone()
        fit(network, (inputs, labels), epochs=30, batch_size=30, learning_rate=0.03, progress=False)
        assert not torch.equal(network.auxiliary_head.layers[-1].weight, before)
        assert (network.predict(inputs).labels == labels).double().mean() > 0.9
        network.save(tmp_path)
        again = RandomSetNetwork.load(tmp_path, TwoEnds())
        assert torch.equal(again.predict(inputs).mass, network.predict(inputs).mass)
