"""Calibration errors: by definition and by torchmetrics."""

import numpy as np
import pytest

from randomset.evaluation.calibration import calibration_error, classwise_calibration_error
from randomset.models.calibration_error import reliability_diagram
from tests.evaluation.conftest import draw


class TestAgreement:
    @pytest.mark.slow
    @pytest.mark.parametrize("bins", [5, 15])
    def test_with_torchmetrics(self, bins):
        from torchmetrics.classification import MulticlassCalibrationError

        p, y = draw()
        other = MulticlassCalibrationError(6, n_bins=bins, norm="l1")
        assert calibration_error(p, y, bins) == pytest.approx(other(p.float(), y).item(), abs=1e-6)

    def test_with_a_loop_over_bins(self):
        p, y = draw()
        confidence, right = p.amax(1), p.argmax(1) == y
        expected = 0.0
        for low in np.arange(10) / 10:
            inside = (confidence > low) & (confidence <= low + 0.1)
            if inside.any():
                gap = right[inside].double().mean() - confidence[inside].mean()
                expected += inside.double().mean().item() * abs(gap.item())
        assert calibration_error(p, y, 10) == pytest.approx(expected)

    def test_every_class_by_itself(self):
        p, y = draw()
        each = classwise_calibration_error(p, y)
        assert each[2].item() == pytest.approx(reliability_diagram(p[:, 2], y == 2).error)
        assert each.shape == (6,)
