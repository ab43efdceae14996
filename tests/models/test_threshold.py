"""Thresholds: how they are chosen, applied and stored."""

import pytest
import torch

from randomset.errors import RandomSetError
from randomset.models.threshold import Threshold


def test_a_threshold_creates_its_folder(tmp_path):
    threshold = Threshold.keeping(0.5, torch.tensor([1.0, 2.0]), "entropy")
    threshold.save(tmp_path / "new" / "run")
    assert Threshold.load(tmp_path / "new" / "run") == threshold


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
