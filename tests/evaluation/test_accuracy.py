"""Accuracy, likelihood and Brier score: by hand and by scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn import metrics

from randomset.errors import LabelError
from randomset.evaluation import Prediction
from randomset.evaluation.accuracy import (
    balanced_accuracy,
    brier_score,
    negative_log_likelihood,
    top_accuracy,
)
from randomset.evaluation.calibration import calibration_error
from tests.evaluation.conftest import draw


def test_ties_are_broken_as_in_predictions():
    even = torch.full((40, 7), 1 / 7)
    answers = Prediction(even).labels
    assert top_accuracy(even, answers) == balanced_accuracy(even, answers) == 1.0


class TestAgreement:
    @pytest.mark.parametrize("seed", range(3))
    def test_with_scikit_learn(self, seed):
        p, y = draw(seed=seed)
        assert top_accuracy(p, y) == pytest.approx(metrics.accuracy_score(y, p.argmax(1)))
        assert top_accuracy(p, y, 3) == pytest.approx(metrics.top_k_accuracy_score(y, p.numpy(), k=3))
        assert balanced_accuracy(p, y) == pytest.approx(metrics.balanced_accuracy_score(y, p.argmax(1)))
        assert negative_log_likelihood(p, y) == pytest.approx(metrics.log_loss(y, p.numpy()))
        target = np.eye(6)[y]
        assert brier_score(p, y) == pytest.approx(((p.numpy() - target) ** 2).sum(1).mean())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 9]), "9 at row 1"),
        (torch.tensor([0]), "do not match"),
        (torch.zeros(2), "do not match"),
    ],
)
def test_labels_that_do_not_fit(labels, message):
    for measure in (top_accuracy, balanced_accuracy, negative_log_likelihood, brier_score, calibration_error):
        with pytest.raises(LabelError, match=message):
            measure(torch.full((2, 3), 1 / 3), labels)
