"""Thresholds: how they are chosen, applied and stored."""

import pytest
import torch

from randomset.errors import RandomSetError, RandomSetWarning
from randomset.models.threshold import Threshold


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
