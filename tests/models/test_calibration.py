"""Calibrated outputs."""

import pytest
import torch

from randomset import RandomSet
from randomset.errors import RandomSetError
from randomset.models import BeliefTemperature, PignisticTemperature
from tests.models.conftest import BUDGET, FEATURES, network


class TestCalibrations:
    def test_one_temperature_for_each_cardinality(self):
        model = network().eval()
        logits = model(FEATURES)
        divided = logits.clone()
        divided[:, :3] /= 2
        divided[:, 3:] /= 3
        found = BeliefTemperature([2.0, 3.0]).random_set(logits, model.operators)
        assert torch.allclose(found.mass, RandomSet.from_logits(divided, BUDGET).mass)
        assert torch.equal(
            BeliefTemperature([2.0, 3.0, 9.0]).random_set(logits, model.operators).mass, found.mass
        )

    def test_a_probability_has_one_temperature_and_the_beliefs_another(self):
        with pytest.raises(
            RandomSetError, match=r"one temperature for BetP.*; got \[1\.0, 2\.0, 3\.0\].*BeliefTemperature"
        ):
            PignisticTemperature([1, 2, 3])

    def test_a_loaded_temperature_changes_the_direction(self):
        model = network().eval()
        logits, cold, hot = model(FEATURES), PignisticTemperature(0.5), PignisticTemperature(2.0)
        expected = hot.random_set(logits, model.operators)
        assert (expected.confidence < RandomSet.from_logits(logits, model.operators).confidence).all()
        cold.load_state_dict(hot.state_dict())
        assert torch.equal(cold.random_set(logits, model.operators).mass, expected.mass)

    def test_the_first_of_two_temperatures_divides_the_beliefs(self):
        model = network().eval()
        logits = model(FEATURES)
        both = PignisticTemperature([2.0, 0.7]).random_set(logits, model.operators)
        one = PignisticTemperature(0.7).random_set(logits / 2, model.operators)
        assert torch.equal(both.mass, one.mass)
        assert not torch.allclose(
            both.mass, PignisticTemperature(0.7).random_set(logits, model.operators).mass
        )

    @pytest.mark.parametrize("temperature", [0.3, 1.0, 1.5, 8.0])
    def test_the_order_of_the_classes_is_kept(self, temperature):
        torch.manual_seed(0)
        logits = 3 * torch.randn(500, len(BUDGET), dtype=torch.float64)
        before = RandomSet.from_logits(logits, BUDGET)
        after = PignisticTemperature(temperature).random_set(logits, BUDGET.operators_on(logits.device))
        assert torch.equal(before.labels, after.labels)
        assert (after.mass >= 0).all()
        assert after.mass.sum(1).tolist() == pytest.approx([1.0] * 500)
        expected = (before.pignistic.clamp_min(1e-300).log() / temperature).softmax(1)
        top = expected.gather(1, before.labels[:, None])[:, 0]
        assert after.confidence.tolist() == pytest.approx(top.tolist(), abs=1e-6)
        order = before.pignistic.argsort(1)
        assert (after.pignistic.gather(1, order).diff(dim=1) >= -1e-9).all()

    def test_a_calibration_is_applied_unless_disabled(self):
        model = network().eval()
        plain = model.predict(FEATURES)
        model.calibration = BeliefTemperature(4.0)
        assert torch.equal(model.predict(FEATURES, calibrated=False).mass, plain.mass)
        assert not torch.equal(model.predict(FEATURES).mass, plain.mass)

    @pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), []])
    def test_bad_temperatures(self, temperature):
        with pytest.raises(RandomSetError, match="temperature"):
            BeliefTemperature(temperature)
