"""The sections of a result: what they report is what the functions give."""

import pytest

from randomset.belief.decision import interval_dominance
from randomset.evaluation import Prediction, Threshold, evaluate
from randomset.evaluation.conformal import Conformal
from tests.evaluation.conftest import TEST, UNKNOWN, model, network, points


class TestNumbers:
    def test_the_threshold_keeps_its_share_of_validation_data(self):
        held = points(200, seed=1)
        result = evaluate(model, TEST, {"noise": UNKNOWN}, validation=held, keep=0.8)
        threshold = Threshold.keeping(0.8, Prediction(model(held[0])).scores["entropy"], "entropy")
        found = result["threshold"]
        assert (found["value"], found["share"], found["validation_samples"]) == (threshold.value, 0.8, 200)
        kept = Prediction(model(TEST[0])).scores["entropy"] <= threshold.value
        stopped = Prediction(model(UNKNOWN)).scores["entropy"] > threshold.value
        assert found["kept"] == pytest.approx(kept.double().mean().item())
        assert found["detected"]["noise"] == pytest.approx(stopped.double().mean().item())
        right = model(TEST[0])[kept].argmax(1) == TEST[1][kept]
        assert found["accuracy_of_kept"] == pytest.approx(right.double().mean().item())
        other = Threshold("1 - maximum", 0.1, 0.5)
        assert evaluate(model, TEST, threshold=other)["threshold"]["score"] == "1 - maximum"

    def test_conformal_sets(self):
        calibration = points(300, seed=2)
        result = evaluate(model, TEST, calibration=calibration, alpha=0.2, seed=5)
        rows = result["conformal"]["rows"]
        assert [(row["score"], row["by_class"]) for row in rows] == [
            (score, by) for score in ("1 - BetP", "APS", "RAPS") for by in (False, True)
        ]
        conformal = Conformal(Prediction(model(calibration[0])), calibration[1], "1 - BetP", seed=5)
        expected = Conformal.measure(conformal.sets(Prediction(model(TEST[0])), 0.2), TEST[1])
        assert rows[0]["coverage"] == pytest.approx(expected.coverage)
        assert rows[0]["class_size"] == pytest.approx(expected.size_by_class.tolist())
        assert result["conformal"]["samples"] == 300

    def test_a_random_set_network_has_bounds(self):
        found = network()
        result = evaluate(found, TEST, {"noise": UNKNOWN}, validation=points(seed=1))
        answer = found.predict(TEST[0])
        scores = result["test"]["scores"]
        assert scores["credal width"]["mean"] == pytest.approx(answer.credal_width.mean().item(), rel=1e-5)
        names = [row["score"] for row in result["conformal"]["rows"]]
        assert names[:4] == ["1 - Pl"] * 2 + ["1 - Bel"] * 2
        size = interval_dominance(answer.mass, answer.budget).sum(1).double().mean().item()
        assert result["decisions"]["interval dominance"]["size"] == pytest.approx(size)
        assert result.classes == ("a", "b", "c")


class TestReliability:
    def test_its_distribution_for_known_and_unknown_inputs(self):
        found = network()
        found.fit_reliability(points(seed=1), points(90, seed=2))
        result = evaluate(found, TEST, {"noise": UNKNOWN}, validation=points(seed=3), score="1 - reliability")
        assert list(result["reliability"]) == ["test", "noise"]
        for name, inputs in (("test", TEST[0]), ("noise", UNKNOWN)):
            expected, section = found.predict(inputs).reliability.double(), result["reliability"][name]
            assert section["samples"] == len(inputs)
            assert section["mean"] == pytest.approx(expected.mean().item(), abs=1e-6)
            assert section["quantiles"]["50%"] == pytest.approx(expected.quantile(0.5).item(), abs=1e-6)
            assert section["familiar"] == (expected >= 0.5).double().mean().item()
        assert result["threshold"]["score"] == "1 - reliability"
        kept = 1 - found.predict(TEST[0]).reliability <= result["threshold"]["value"]
        assert result["threshold"]["kept"] == kept.double().mean().item()

    def test_a_model_without_one_has_no_section(self):
        assert "reliability" not in evaluate(network(), TEST)


class TestRepairs:
    def test_repaired_mass_is_reported(self):
        found = network()
        expected = found.predict(TEST[0]).validity.negative.double().mean().item()
        assert evaluate(found, TEST)["test"]["negative_mass"] == pytest.approx(expected)
        assert "negative_mass" not in evaluate(model, TEST)["test"]
