"""Calibration after training: temperatures of random-set and softmax networks."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import randomset as rs
from randomset.errors import LabelError, RandomSetError
from randomset.models import Epinet, Softmax
from tests.models.baselines import X, Y, body


def identity_softmax(scale=1.0):
    """A softmax network whose logits are its inputs, times a number."""
    model = Softmax(nn.Identity(), 3, in_features=3)
    with torch.no_grad():
        model.layer.weight.copy_(scale * torch.eye(3))
        model.layer.bias.zero_()
    return model.eval()


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
        assert not model.can_calibrate
        assert Softmax(body(), 3).can_calibrate
        with pytest.raises(RandomSetError, match="no calibration; got Epinet"):
            rs.calibrate(model, (X, Y))
        with pytest.raises(RandomSetError, match=r"only classifiers of randomset.*got Linear"):
            rs.calibrate(nn.Linear(2, 3), (X, Y))

    def test_labels(self):
        with pytest.raises(LabelError, match="label out of range; got 3"):
            rs.calibrate(Softmax(body(), 3), (X, Y + 1))
        with pytest.raises(LabelError, match="no data to calibrate on"):
            rs.calibrate(Softmax(body(), 3), (X, torch.full_like(Y, -100)))
