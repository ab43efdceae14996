"""The Lightning module that trains any network: what it measures, what it ignores."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import randomset as rs
from randomset import backbones
from randomset.errors import RandomSetError
from randomset.models.prediction import calibration_error
from tests.training.conftest import BUDGET, network, quick


@pytest.mark.slow
class TestMeasures:
    def test_the_measures_are_those_of_the_predictions(self, digits):
        model = network()
        row = quick(model, *digits, epochs=2).last
        x, y = digits[1].tensors
        answer = model.predict(x, calibrated=False, discounted=False)
        right = answer.labels == y
        assert row["val_accuracy"] == pytest.approx(right.float().mean().item())
        assert row["val_invalid"] == pytest.approx(answer.validity.repaired.float().mean().item())
        assert row["val_ece"] == pytest.approx(calibration_error(answer.confidence, right.float()), abs=1e-5)
        likelihood = answer.pignistic.gather(1, y[:, None]).log().mean()
        assert row["val_nll"] == pytest.approx(-likelihood.item(), rel=1e-4)
        assert row["val_loss"] == pytest.approx(rs.RandomSetLoss(BUDGET)(model.eval()(x), y).item(), rel=1e-3)

    def test_the_same_engine_trains_a_plain_network(self, digits):
        plain = nn.Sequential(backbones.mlp(64, (32,)), nn.Linear(32, 10))
        report = quick(plain, *digits, epochs=4, loss=nn.CrossEntropyLoss(), learning_rate=1e-2)
        assert report.last["val_accuracy"] > 0.7  # chance is 0.1; two seeds gave 0.81 and 0.84
        assert "val_invalid" not in report.last
        assert report.calibration is None


@pytest.mark.slow
class TestBatches:
    def test_ignored_labels_of_the_loss_are_ignored_everywhere(self, digits):
        x, y = digits[1].tensors
        for index in (-1, 255):
            marked = torch.cat((y[:100], torch.full((200,), index)))
            model = network()
            loss = rs.RandomSetLoss(BUDGET, ignore_index=index)
            row = quick(model, digits[0], TensorDataset(x, marked), loss=loss, epochs=2)
            expected = quick(network(), digits[0], TensorDataset(x[:100], y[:100]), epochs=2)
            assert row.last["val_accuracy"] == pytest.approx(expected.last["val_accuracy"])
            assert row.calibration.samples == 100

    def test_smoothed_labels(self, digits, monkeypatch):
        """A class index with ε = 0.2 is 0.82 for its class of ten, and 0.02 for the others."""
        seen = []
        forward = rs.RandomSetLoss.forward

        def watching(self, logits, labels, weight=None):
            seen.append((self.training, labels))
            return forward(self, logits, labels, weight)

        monkeypatch.setattr(rs.RandomSetLoss, "forward", watching)
        recipe = rs.Recipe.named("fast", label_smoothing=0.2)
        report = quick(network(), *digits, recipe=recipe)
        for training, labels in seen:
            assert labels.dim() == 1 + training  # validation compares with the labels themselves
            if training:
                assert torch.allclose(labels.sort(1).values, torch.tensor([0.02] * 9 + [0.82]))
        assert report.last["val_accuracy"] > 0.2
        x, y = digits[0].tensors
        with pytest.raises(RandomSetError, match="ignored labels cannot be smoothed"):
            quick(network(), TensorDataset(x, y.where(y > 0, -100)), recipe=recipe)

    def test_epochs_without_validation_have_no_values(self, digits):
        history = quick(network(), *digits, epochs=4, check_val_every_n_epoch=2).history
        assert ["val_accuracy" in row for row in history] == [False, True, False, True]

    def test_micro_batches_have_masks_of_their_own(self, digits):
        masks = []

        class Watching(nn.Module):
            num_features = 64

            def forward(self, x):
                dropped = nn.functional.dropout(torch.ones(64), 0.5, self.training)
                if self.training:
                    masks.append(dropped)
                return x * dropped

        model = rs.RandomSetNetwork(Watching(), BUDGET)
        quick(model, digits[0], accumulate_grad_batches=2)
        assert len({tuple(mask.tolist()) for mask in masks}) == len(masks) == 13


@pytest.mark.slow
class TestAveragedWeights:
    def test_the_average_of_all_steps(self, digits):
        """By hand: e ← d e + (1 − d) w after each step, d = min(decay, (1 + t)/(10 + t)), e_0 = w_0."""
        from lightning import Callback

        seen = []

        class Watching(Callback):
            def on_train_batch_end(self, trainer, engine, *_):
                seen.append([p.detach().clone() for p in engine.module.parameters()])

        model = network()
        quick(model, digits[0], ema=0.5, callbacks=[Watching()])
        assert len(seen) == 13
        average = seen[0]
        for step, weights in enumerate(seen[1:], 1):
            decay = min(0.5, (1 + step) / (10 + step))
            average = [decay * a + (1 - decay) * w for a, w in zip(average, weights, strict=True)]
        for found, expected in zip(model.parameters(), average, strict=True):
            assert torch.allclose(found, expected, atol=1e-6)
            assert found.requires_grad

    def test_it_is_validated_saved_and_calibrated(self, digits, tmp_path):
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())
        model = rs.RandomSetNetwork(backbone, BUDGET, in_features=32)
        report = quick(model, *digits, epochs=3, ema=0.99, out=tmp_path)
        x, y = digits[1].tensors
        answer = model.predict(x, calibrated=False, discounted=False)
        assert report.last["val_accuracy"] == pytest.approx((answer.labels == y).double().mean().item())
        stored = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for name in ("backbone.0.weight", "backbone.1.running_var"):
            assert torch.equal(stored[f"average.module.{name}"], model.state_dict()[name])
            assert not torch.equal(stored[f"module.{name}"], model.state_dict()[name])
        assert report.calibration is not None

    def test_the_average_of_the_best_epoch_is_kept(self, digits, tmp_path):
        model = network()
        report = quick(model, *digits, epochs=3, ema=0.9, out=tmp_path, keep="best", calibrated=False)
        x, y = digits[1].tensors
        accuracy = (model.predict(x, discounted=False).labels == y).double().mean().item()
        assert accuracy == pytest.approx(report.best["val_accuracy"])

    def test_a_frozen_backbone_stays(self, digits):
        model = network().freeze_backbone()
        before = [p.clone() for p in model.backbone.parameters()]
        quick(model, digits[0], ema=0.9)
        assert all(torch.equal(a, b) for a, b in zip(before, model.backbone.parameters(), strict=True))
