"""evaluate(): the numbers, and what is refused."""

import pytest
import torch
from torch import nn

from randomset.belief.decision import interval_dominance
from randomset.errors import RandomSetError
from randomset.evaluation import Prediction, Threshold, evaluate
from randomset.evaluation.conformal import Conformal
from randomset.evaluation.metrics import (
    brier_score,
    calibration_error,
    detection,
    negative_log_likelihood,
    rank_average,
)
from tests.evaluation.conftest import TEST, UNKNOWN, model, network, points


class TestNumbers:
    """What evaluate reports is what the functions give on the model's outputs."""

    def test_of_a_function(self):
        result = evaluate(
            model, TEST, {"noise": UNKNOWN}, validation=points(seed=1), calibration=points(seed=2)
        )
        p, labels = model(TEST[0]), TEST[1]
        test = result["test"]
        assert test["samples"] == 120
        assert test["accuracy"] == pytest.approx((p.argmax(1) == labels).double().mean().item())
        assert test["nll"] == pytest.approx(negative_log_likelihood(p, labels))
        assert test["brier"] == pytest.approx(brier_score(p, labels))
        assert test["ece"] == pytest.approx(calibration_error(p, labels))
        assert sum(test["reliability"]["count"]) == 120
        known, unknown = Prediction(p), Prediction(model(UNKNOWN))
        for score in ("entropy", "1 - maximum"):
            expected = detection(known.scores[score], unknown.scores[score])
            found = result["ood"]["noise"]["scores"][score]
            assert (found["auroc"], found["fpr95"]) == (expected.auroc, expected.fpr95)
            assert found["unknown"]["mean"] == pytest.approx(unknown.scores[score].mean().item())
        held = Prediction(model(points(seed=1)[0]))
        ranked = [rank_average(held.scores, one.scores) for one in (known, unknown)]
        expected = detection(*ranked).auroc
        assert result["ood"]["noise"]["scores"]["rank average"]["auroc"] == pytest.approx(expected)


class TestMistakes:
    def test_a_few_shared_inputs_are_dropped(self):
        mixed = torch.cat((torch.randn(200, 2), TEST[0][:2]))
        result = evaluate(model, TEST, {"mixed": mixed})
        assert result["ood"]["mixed"]["samples"] == 200
        assert result["remarks"] == ["mixed: 2 of 202 inputs are in the test data and were dropped"]
        assert result["left_out"] == {"mixed": [200, 201]}

    def test_shared_validation_inputs_are_dropped(self):
        generator = torch.Generator().manual_seed(3)
        held = torch.cat((TEST[0][:1], torch.randn(150, 2, generator=generator)))
        result = evaluate(model, TEST, validation=(held, torch.arange(151) % 3))
        assert len(result.predictions["validation"]) == 150
        assert "validation: 1 of 151 inputs are in the test data and were dropped" in result["remarks"]

    def test_repeated_rows_are_allowed(self):
        generator = torch.Generator().manual_seed(0)
        rows = torch.randint(0, 2, (300, 2), generator=generator).float()
        labels = torch.arange(300) % 3
        result = evaluate(model, (rows[:150], labels[:150]), validation=(rows[150:], labels[150:]))
        assert len(result.predictions["validation"]) == 150
        (remark,) = (text for text in result["remarks"] if "equal a test input" in text)
        assert "of 150 inputs equal a test input" in remark
        assert result["left_out"] == {}

    def test_a_threshold_on_a_missing_score(self):
        with pytest.raises(
            RandomSetError,
            match="does not provide the threshold's score; got credal width; expected one of entropy",
        ):
            evaluate(model, TEST, threshold=Threshold("credal width", 0.5, 0.95))

    def test_validation_data_that_are_test_data(self):
        with pytest.raises(RandomSetError, match="validation overlaps with the test data; got 120 of 120"):
            evaluate(model, TEST, validation=TEST)

    def test_unknown_inputs_that_are_test_inputs(self):
        mixed = torch.cat((UNKNOWN[:4], TEST[0][:2]))
        with pytest.raises(
            RandomSetError, match=r"mixed overlaps with the test data; got 2 of 6 inputs.*row 4"
        ):
            evaluate(model, TEST, {"mixed": mixed})

    def test_sets_of_one_class_are_classes_and_larger_ones_are_not(self):
        mask = nn.functional.one_hot(TEST[1], 3).bool()
        assert evaluate(model, (TEST[0], mask))["test"] == evaluate(model, TEST)["test"]
        mask[4] = True
        with pytest.raises(RandomSetError, match="test on data with a single label per input"):
            evaluate(model, (TEST[0], mask))

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: evaluate(3, TEST), "cannot evaluate this model; got int"),
            (lambda: evaluate(model, (TEST[0], TEST[1] + 1)), "label out of range; got 3 at row 2"),
            (
                lambda: evaluate(model, (TEST[0], TEST[1][:-1])),
                "different lengths, or are empty; got 120 and 119",
            ),
            (lambda: evaluate(model, TEST[0]), "test has no labels"),
            (lambda: evaluate(model, (TEST[0], TEST[0])), "not class indices; got torch.float32"),
            (lambda: evaluate(model, (TEST[0][:0], TEST[1][:0])), "or are empty; got 0 and 0"),
            (lambda: evaluate(model, []), "no batches of test"),
            (lambda: evaluate(model, 7), "unsupported type of data for test; got int"),
            (lambda: evaluate(model, TEST, score="width"), "unknown score; got width; expected one of"),
            (
                lambda: evaluate(model, TEST, score="1 - reliability"),
                r"the model has no reliability; got the score 1 - rel.*; expected one of entr.*Train a rand",
            ),
            (lambda: evaluate(model, TEST, {"test": UNKNOWN}), "reserved name in ood; got test"),
            (lambda: evaluate(model, TEST, alpha=1.5), "alpha"),
            (lambda: evaluate(model, TEST, batch_size=0), "batch_size"),
            (lambda: evaluate(model, TEST, attacks=(0.1,)), "model with gradients; got function"),
            (lambda: evaluate(model, TEST, noise=(0.1,)), r"pixels in \[0, 1\]"),
            (lambda: evaluate(model, TEST, validation=points(20), keep=0), "keep is out of range"),
            (lambda: evaluate(nn.Linear(5, 3), TEST), r"failed on the inputs of test.*\(2,\)"),
            (lambda: evaluate(lambda x: x, TEST), "invalid probabilities on test"),
            (
                lambda: evaluate(lambda x: model(x)[:1], TEST),
                "number of predictions does not match.*1 for 120",
            ),
            (lambda: evaluate(lambda x: (model(x), {"s": x[:, 0] / 0}), TEST), "input 0 .batch 0, index 0"),
            (lambda: evaluate(model, TEST, keep=1.5), "keep is out of range"),
            (lambda: evaluate(model, TEST, [UNKNOWN]), "must be a mapping of names to data; got list"),
            (lambda: evaluate(lambda x: 9 * model(x), TEST), "invalid probabilities on test"),
            (lambda: evaluate(model, "nothing"), "no such data"),
        ],
    )
    def test_errors(self, call, message):
        with pytest.raises(RandomSetError, match=message):
            call()


class TestSections:
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
            limit = float(found.reliability.familiar_from)
            assert section["familiar"] == (expected >= limit).double().mean().item()
            assert section["familiar_from"] == limit
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
