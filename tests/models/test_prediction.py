"""Predictions: probabilities with scores, averages of samples, and what is refused."""

import pytest
import torch

from randomset import Budget, RandomSet
from randomset.errors import InvalidBeliefError
from randomset.models import Prediction


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
