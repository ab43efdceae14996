"""Softmax networks: MC dropout and temperature scaling."""

import pytest
import torch
from torch import nn

from randomset.errors import RandomSetError
from randomset.models import MCDropout, Softmax
from randomset.models.softmax import softmax_temperature
from randomset.training import TrainConfig, train
from tests.models.conftest import X, body


class TestDropout:
    def test_masks_keep_the_mean(self):
        """What is kept is scaled up: averaged over many masks, features are as they were."""
        model = MCDropout(body(), 3, rate=0.4, samples=20_000)
        assert torch.allclose(model.kept.mean(0), torch.ones(1, 16), atol=0.03)
        assert model.kept.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
        one = MCDropout(body(), 3, rate=0.4, samples=1)
        expected = one.layer(one.features(X) * one.kept[0]).softmax(1)
        assert torch.allclose(one.predict(X).probabilities, expected)


class TestTemperature:
    def test_few_samples_without_an_error_hardly_move_it(self):
        logits, labels = 5 * torch.eye(3), torch.arange(3)
        assert 0.9 < softmax_temperature(logits, labels) < 1.1

    def test_overconfident_logits_are_cooled(self):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(4000, 3, generator=generator)
        labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
        model = Softmax(nn.Identity(), 3, in_features=3)
        with torch.no_grad():
            model.layer.weight.copy_(3 * torch.eye(3))
            model.layer.bias.zero_()
        report = model.calibrate((logits, labels))
        assert report.temperature[0] == pytest.approx(3, rel=0.1)
        assert report.nll[1] < report.nll[0]
        assert report.ece[1] < report.ece[0]
        assert report.changed == 0
        assert torch.allclose(model.predict(logits).probabilities, logits.softmax(1), atol=0.05)


class TestMistakes:
    def test_a_temperature_needs_validation_data(self):
        config = TrainConfig(method="temperature", epochs=1)
        inputs, labels = torch.randn(40, 2), torch.arange(40) % 2
        with pytest.raises(RandomSetError, match="validation data"):
            train(config, inputs, labels, ("a", "b"), progress=False)
