"""Anything that predicts, as a predictor."""

import numpy as np
import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetNetwork
from randomset.errors import InvalidBeliefError, RandomSetError, ShapeError
from randomset.evaluation import Prediction, as_predictor, evaluate, random_set_predictor, softmax_predictor
from tests.evaluation.conftest import TEST, assert_alike, model, network, points


class TestPredictors:
    def test_a_softmax_model(self):
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
        x = torch.randn(6, 4)
        found = softmax_predictor(model)(x)
        assert torch.allclose(found.probabilities, model.eval()(x).softmax(1))
        entropy = torch.distributions.Categorical(found.probabilities).entropy() / np.log(2)
        assert torch.allclose(found.scores["entropy"], entropy, atol=1e-5)

    def test_a_random_set_network(self):
        network = RandomSetNetwork(nn.Linear(4, 8), Budget.from_sets([{0, 1}], 3))
        x = torch.randn(6, 4)
        found, answer = random_set_predictor(network)(x), network.predict(x)
        assert torch.equal(found.probabilities, answer.pignistic)
        assert torch.equal(found.scores["credal width"], answer.credal_width)
        assert torch.equal(found.upper, answer.upper)
        joined = Prediction.concatenate([found, found])
        assert len(joined) == 12
        assert joined.scores.keys() == found.scores.keys()
        assert torch.equal(joined.lower[6:], answer.lower)

    def test_a_function_with_scores_of_its_own(self):
        predict = as_predictor(lambda x: (np.full((len(x), 2), 0.5), {"distance": np.arange(len(x))}))
        found = predict(np.zeros((3, 1)))
        assert found.scores["distance"].tolist() == [0, 1, 2]
        assert found.confidence.tolist() == [0.5] * 3

    def test_invalid_predictions(self):
        with pytest.raises(InvalidBeliefError, match="input 1 of a batch"):
            Prediction(torch.tensor([[0.5, 0.5], [torch.nan, 0.5]]))
        with pytest.raises(InvalidBeliefError, match="sum to one"):
            as_predictor(lambda x: [[3.0, 1.0]])([0])
        with pytest.raises(ShapeError, match="expected class probabilities"):
            Prediction(torch.ones(3))
        with pytest.raises(ShapeError, match="distance"):
            Prediction(torch.full((2, 2), 0.5), {"distance": torch.zeros(3)})
        with pytest.raises(RandomSetError, match="as_predictor"):
            softmax_predictor(lambda x: x)


class TestKindsOfModels:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: model,
            lambda: as_predictor(model),
            lambda: lambda x: model(x).numpy(),
            lambda: lambda x: (model(x).tolist(), {"own": np.arange(len(x)).astype(float)}),
        ],
    )
    def test_every_kind_of_model(self, make):
        result = evaluate(make(), TEST)
        assert result["test"]["accuracy"] == evaluate(model, TEST)["test"]["accuracy"]

    def test_estimators_and_random_sets(self):
        from sklearn.linear_model import LogisticRegression

        fitted = LogisticRegression().fit(TEST[0].numpy(), TEST[1].numpy())
        assert evaluate(fitted, points(seed=3))["test"]["accuracy"] > 0.9
        found = network()
        assert_alike(evaluate(found.predict, TEST)["test"], evaluate(found, TEST)["test"])

    def test_a_module_gives_logits(self):
        layer = nn.Linear(2, 3)
        result = evaluate(layer, TEST)
        right = layer(TEST[0]).argmax(1) == TEST[1]
        assert result["test"]["accuracy"] == pytest.approx(right.double().mean().item())
