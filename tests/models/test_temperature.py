"""Calibration after training: temperatures of random-set and softmax networks."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import randomset as rs
from randomset import backbones
from randomset.backbones.inputs import InputSpec
from randomset.errors import LabelError, RandomSetError, ShapeError
from randomset.models import Epinet, Softmax
from randomset.models.prediction import calibration_error
from randomset.models.temperature import calibrate
from tests.models.conftest import X, Y, body
from tests.training.conftest import network, quick


def identity_softmax(scale=1.0):
    """A softmax network whose logits are its inputs, times a number."""
    model = Softmax(nn.Identity(), 3, in_features=3)
    with torch.no_grad():
        model.layer.weight.copy_(scale * torch.eye(3))
        model.layer.bias.zero_()
    return model.eval()


def test_inputs_in_another_layout():
    images, labels = torch.rand(60, 3, 6, 6), torch.arange(60) % 3
    model = Softmax(backbones.small_cnn(3, 6), 3)
    model.notes = InputSpec.of(images).to_notes()
    expected = rs.calibrate(copy.deepcopy(model), (images, labels))
    found = rs.calibrate(copy.deepcopy(model), (images.permute(0, 2, 3, 1).numpy(), labels))
    assert found.nll == pytest.approx(expected.nll)
    with pytest.raises(ShapeError, match="a different scale"):
        rs.calibrate(model, (255 * images, labels))


def drawn(samples=4000):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(samples, 3, generator=generator)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


class TestSoftmax:
    def test_the_temperature_is_fitted_and_kept(self):
        logits, labels = drawn()
        model = identity_softmax(3.0)
        before = model.predict(logits)
        report = rs.calibrate(model, TensorDataset(logits, labels))
        assert report.kind == "temperature"
        assert report.samples == 4000
        assert report.temperature[0] == pytest.approx(3, rel=0.1)
        assert model.temperature.item() == pytest.approx(report.temperature[0])
        assert report.nll[1] < report.nll[0]
        assert report.ece[1] < report.ece[0]
        assert (report.changed, report.refused) == (0, None)
        after = model.predict(logits)
        assert torch.equal(after.labels, before.labels)
        assert torch.allclose(after.probabilities, logits.softmax(1), atol=0.05)
        for place, prediction in enumerate((before, after)):
            p = prediction.probabilities
            assert report.nll[place] == pytest.approx(
                nn.functional.nll_loss(p.log(), labels).item(), rel=1e-4
            )
            right = (prediction.labels == labels).float().mean().item()
            assert report.accuracy[place] == pytest.approx(right)

    def test_calibrated_twice(self):
        data, model = drawn(), identity_softmax(3.0)
        first = rs.calibrate(model, data)
        second = rs.calibrate(model, data)
        assert second.temperature == pytest.approx(first.temperature)
        assert second.nll[0] == pytest.approx(first.nll[1])

    def test_set_valued_and_ignored_labels(self):
        logits, labels = drawn()
        expected = rs.calibrate(identity_softmax(2.0), (logits[:3000], labels[:3000]))
        ignored = labels.clone()
        ignored[3000:] = -100
        assert rs.calibrate(identity_softmax(2.0), (logits, ignored)) == expected
        mask = nn.functional.one_hot(labels, 3).bool()
        found = rs.calibrate(identity_softmax(2.0), (logits[:3000], mask[:3000]))
        assert found.temperature == pytest.approx(expected.temperature)

    def test_log_probabilities_are_calibrated(self):
        logits, labels = drawn()
        model = identity_softmax(3.0)
        rs.calibrate(model, (logits, labels))
        found = model.as_logits()(logits).softmax(1)
        assert torch.allclose(found, model.predict(logits).probabilities, atol=1e-6)


class TestMistakes:
    def test_models_without_a_calibration(self):
        model = Epinet(body(), 3)
        with pytest.raises(RandomSetError, match="no calibration; got Epinet"):
            rs.calibrate(model, (X, Y))
        with pytest.raises(RandomSetError, match=r"only classifiers of randomset.*got Linear"):
            rs.calibrate(nn.Linear(2, 3), (X, Y))

    def test_labels(self):
        with pytest.raises(LabelError, match="label out of range; got 3"):
            rs.calibrate(Softmax(body(), 3), (X, Y + 1))
        with pytest.raises(LabelError, match="no data to calibrate on"):
            rs.calibrate(Softmax(body(), 3), (X, torch.full_like(Y, -100)))


@pytest.mark.slow
class TestCalibration:
    @pytest.fixture
    def trained(self, digits):
        model = network()
        quick(model, digits[0], epochs=6, learning_rate=1e-2)
        return model

    def test_a_scaled_head_scales_the_temperature(self, digits, monkeypatch):
        monkeypatch.setattr("randomset.models.temperature._PRIOR_STD", 100.0)  # the likelihood alone
        torch.manual_seed(0)
        model = rs.RandomSetNetwork(backbones.mlp(64, (32,)), rs.Budget.singletons(10))
        quick(model, digits[0], epochs=6, learning_rate=1e-2)
        found = calibrate(model, digits[1]).temperature[0]
        model.head.layers[-1].weight.data *= 3
        model.head.layers[-1].bias.data *= 3
        report = calibrate(model, digits[1])
        assert report.temperature[0] == pytest.approx(3 * found, rel=0.05)
        assert report.nll[1] < report.nll[0]
        assert report.samples == 300

    def test_the_report_matches_the_predictions(self, digits, trained):
        report = calibrate(trained, digits[1])
        x, y = digits[1].tensors
        for number, calibrated in enumerate((False, True)):
            answer = trained.predict(x, calibrated=calibrated)
            right = (answer.labels == y).float()
            assert report.accuracy[number] == pytest.approx(right.mean().item())
            assert report.ece[number] == pytest.approx(calibration_error(answer.confidence, right), abs=1e-6)
            likelihood = -answer.pignistic.gather(1, y[:, None]).log().mean().item()
            assert report.nll[number] == pytest.approx(likelihood, abs=1e-5)
        assert "predictions changed" in str(report)

    def test_one_for_each_cardinality_is_no_less_likely(self, digits, trained):
        one = calibrate(trained, digits[1])
        several = calibrate(trained, digits[1], per_cardinality=True)
        assert several.nll[1] <= one.nll[1] + 1e-6
        assert len(several.temperature) in (1, 2, 3)

    def test_the_class_order_is_kept_if_predictions_would_change(self, monkeypatch):
        monkeypatch.setattr("randomset.models.temperature.MAX_CHANGED", (0, 0.0))
        # The inputs are the logits. They are sure of themselves and right half of the time.
        model = rs.RandomSetNetwork(nn.Identity(), rs.Budget.powerset(4), in_features=15)
        model.head.layers[-1].weight.data = torch.eye(15)
        model.head.layers[-1].bias.data.zero_()
        torch.manual_seed(0)
        logits = 4 * torch.randn(600, 15)
        labels = torch.where(
            torch.arange(600) % 2 == 0, model.predict(logits).labels, torch.randint(4, (600,))
        )
        report = calibrate(model, TensorDataset(logits, labels))
        assert report.refused is not None
        assert report.refused > 0
        assert len(report.temperature) == 1
        assert report.kind == "PignisticTemperature"
        assert report.changed == 0
        assert report.accuracy[0] == report.accuracy[1]
        assert report.nll[1] < report.nll[0]
        assert "would have changed" in str(report)

    def test_a_few_perfect_samples_do_not_make_it_overconfident(self, digits, trained):
        x, y = digits[1].tensors
        right = trained.predict(x).labels == y
        few = TensorDataset(x[right][:30], y[right][:30])
        assert calibrate(trained, few).temperature[0] > 0.5

    def test_ignored_and_missing_labels(self, digits, trained):
        x, y = digits[1].tensors
        half = y.clone()
        half[150:] = -100
        expected = calibrate(trained, TensorDataset(x[:150], y[:150]))
        assert calibrate(trained, TensorDataset(x, half)) == expected
        with pytest.raises(LabelError, match="no data to calibrate on"):
            calibrate(trained, TensorDataset(x, torch.full_like(y, -100)))
        with pytest.raises(LabelError, match="calibration data have no labels"):
            calibrate(trained, TensorDataset(x))
        with pytest.raises(RandomSetError, match="only classifiers of randomset"):
            calibrate(nn.Linear(64, 10), digits[1])
