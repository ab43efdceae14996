"""Deep ensembles: the mean of the members."""

import torch

from randomset.models import Ensemble
from tests.models.conftest import X, make


class TestEnsemble:
    def test_an_ensemble_of_one_is_its_member(self):
        member = make("softmax")
        found = Ensemble([member]).predict(X)
        assert torch.allclose(found.probabilities, member.predict(X).probabilities)
        assert found.scores["mutual information"].abs().max() < 1e-5

    def test_an_ensemble_averages(self):
        ensemble = make("ensemble")
        expected = torch.stack([member.predict(X).probabilities for member in ensemble.members]).mean(0)
        assert torch.allclose(ensemble.predict(X).probabilities, expected)
