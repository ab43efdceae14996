"""Predictions: probabilities with scores, averages of samples, and what is refused."""

import pytest
import torch

from randomset import Budget, RandomSet
from randomset.errors import InvalidBeliefError, RandomSetError, RandomSetWarning
from randomset.models import Prediction
from randomset.models.prediction import Threshold, calibration_error, calibration_gaps, reliability_diagram
from tests.evaluation.conftest import draw


class TestSamples:
    def test_no_disagreement_no_information(self):
        p = torch.rand(4, 3).softmax(-1)
        found = Prediction.from_samples(p.expand(7, 4, 3))
        assert torch.allclose(found.probabilities, p)
        assert torch.allclose(found.scores["mutual information"], torch.zeros(4), atol=1e-6)

    def test_full_disagreement_is_one_bit(self):
        found = Prediction.from_samples(torch.eye(2)[:, None])
        assert found.probabilities.tolist() == [[0.5, 0.5]]
        assert found.scores["mutual information"].tolist() == pytest.approx([1.0], abs=1e-6)


class TestParts:
    def prediction(self):
        p = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
        return Prediction(p, {"distance": torch.tensor([1.0, 2.0, 3.0])}, p - 0.1, p + 0.1)

    def test_scores_are_completed(self):
        found = self.prediction()
        assert list(found.scores) == ["entropy", "1 - maximum", "distance"]
        assert found.scores["entropy"][0].item() == 1.0
        assert found.labels.tolist() == [0, 0, 1]
        assert found.confidence.tolist() == pytest.approx([0.5, 0.9, 0.8])

    def test_cut_and_joined(self):
        whole = self.prediction()
        again = Prediction.concatenate([whole[:1], whole[1:]])
        assert len(again) == 3
        for name in ("probabilities", "lower", "upper"):
            assert torch.equal(getattr(again, name), getattr(whole, name))
        assert again.negative is None
        for name, score in whole.scores.items():
            assert torch.equal(again.scores[name], score)

    def test_a_random_set(self):
        answer = RandomSet.from_mass(torch.tensor([[0.5, 0.2, 0.3]]), Budget.powerset(2))
        found = Prediction.from_random_set(answer)
        assert torch.equal(found.probabilities, answer.pignistic)
        assert torch.equal(found.lower, answer.lower)
        assert torch.equal(found.upper, answer.upper)
        assert torch.equal(found.scores["credal width"], answer.credal_width)

    def test_reliability_of_discounted_predictions(self):
        answer = RandomSet.from_mass(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), Budget.singletons(2))
        assert Prediction.of(answer).reliability is None
        found = Prediction.of(answer.discount(torch.tensor([0.25, 1.0]))).reliability
        assert found is not None
        assert found.tolist() == pytest.approx([0.25, 1.0])

    def test_bounds_must_be_finite(self):
        p = torch.full((2, 2), 0.5)
        with pytest.raises(InvalidBeliefError, match="upper is not finite; got row 1"):
            Prediction(p, {}, p, torch.tensor([[1.0, 1.0], [1.0, torch.nan]]))


def test_a_threshold_creates_its_folder(tmp_path):
    threshold = Threshold.keeping(0.5, torch.tensor([1.0, 2.0]), "entropy")
    threshold.save(tmp_path / "new" / "run")
    assert Threshold.load(tmp_path / "new" / "run") == threshold


class TestEqualScores:
    def test_a_constant_score(self):
        message = (
            r"100% of the 40 known inputs have the same mass on Θ, 0: the threshold accepts 100% .*another"
        )
        with pytest.warns(RandomSetWarning, match=message):
            threshold = Threshold.keeping(0.95, torch.zeros(40), "mass on Θ")
        assert threshold.known(torch.zeros(3)).all()

    def test_a_score_that_is_mostly_equal(self):
        scores = torch.cat((torch.full((97,), 0.1), torch.tensor([0.2, 0.3, 0.4])))
        with pytest.warns(RandomSetWarning, match=r"97% of the 100 .* accepts 97% of them instead of 95%"):
            Threshold.keeping(0.95, scores, "credal width")

    def test_the_remedy_is_not_the_score_itself(self):
        with pytest.warns(RandomSetWarning, match="Check the model: its predictions hardly differ"):
            Threshold.keeping(0.95, torch.ones(40), "entropy")

    def test_equal_scores_below_the_threshold_do_not_matter(self):
        scores = torch.cat((torch.zeros(80), torch.linspace(0.1, 1, 20)))
        assert Threshold.keeping(0.95, scores, "entropy").value == pytest.approx(0.763, abs=1e-3)

    def test_a_single_input(self):
        assert Threshold.keeping(0.95, torch.tensor([0.5]), "entropy").value == 0.5


class TestThresholdFile:
    def test_round_trip(self, tmp_path):
        assert Threshold.load(tmp_path) is None
        threshold = Threshold("mass on Θ", 0.25, 0.9)
        threshold.save(tmp_path)
        assert Threshold.load(tmp_path) == threshold

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "randomset.threshold", "version": 1}'])
    def test_damaged(self, tmp_path, content):
        (tmp_path / "threshold.json").write_text(content)
        message = r"(threshold cannot be read|invalid threshold file).*threshold\.json"
        with pytest.raises(RandomSetError, match=message):
            Threshold.load(tmp_path)


class TestBins:
    def test_bins_of_equal_numbers(self):
        p, y = draw(600)
        found = reliability_diagram(p.amax(1), p.argmax(1) == y, 12, by="mass")
        assert found.count.tolist() == [50] * 12
        groups = p.amax(1).argsort().reshape(12, 50)
        right = (p.argmax(1) == y).double()
        gaps = (right[groups].mean(1) - p.amax(1)[groups].mean(1)).abs()
        assert found.error == pytest.approx(gaps.mean().item())
        tied = reliability_diagram(torch.full((9,), 0.7), torch.ones(9), 5, by="mass")
        assert tied.error == pytest.approx(0.3)

    def test_sums_of_batches_are_those_of_all(self):
        p, y = draw()
        confidence, right = p.amax(1), p.argmax(1) == y
        parts = [calibration_gaps(confidence[rows], right[rows]) for rows in torch.arange(500).split(70)]
        assert sum(parts).abs().sum().item() / 500 == pytest.approx(calibration_error(confidence, right))
        assert calibration_error(confidence, right) == pytest.approx(
            reliability_diagram(confidence, right).error
        )

    def test_mistakes(self):
        for options in ({"bins": 0}, {"by": "size"}):
            with pytest.raises(RandomSetError, match="invalid bins"):
                reliability_diagram(torch.rand(5), torch.ones(5), **options)
