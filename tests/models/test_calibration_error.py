"""Reliability diagrams and the expected calibration error."""

import pytest
import torch

from randomset.errors import RandomSetError
from randomset.models.calibration_error import calibration_error, calibration_gaps, reliability_diagram
from tests.evaluation.conftest import draw


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
