import numpy as np
import pytest

from randomset.errors import RandomSetError
from randomset.report.series import (
    DetectionCurves,
    correct_predictions,
    reliability_bins,
    scores_of,
    sorted_levels,
)


def test_detection_curves_match_the_stored_areas(full):
    for score in ("entropy", "credal width", "rank average"):
        for name, found in full["ood"].items():
            curves = DetectionCurves.of(scores_of(full, "test", score), scores_of(full, name, score))
            assert curves.auroc == pytest.approx(found["scores"][score]["auroc"])
            assert curves.auprc == pytest.approx(found["scores"][score]["auprc"])
            assert curves.chance == found["samples"] / (found["samples"] + 300)


def test_unknown_score_raises_an_error(full):
    with pytest.raises(RandomSetError, match="unknown score; got luck; expected one of entropy"):
        scores_of(full, "test", "luck")


def test_reliability_bins_are_the_filled_ones(full):
    low, high, count, confidence, accuracy = reliability_bins(full)
    assert (count > 0).all()
    assert count.sum() == 300
    assert (accuracy * count).sum() == pytest.approx(correct_predictions(full).sum())
    assert ((low <= confidence) & (confidence <= high)).all()
    ece = (count * np.abs(accuracy - confidence)).sum() / 300
    assert ece == pytest.approx(full["test"]["ece"])


def test_levels_are_sorted_and_enclosing_ranges_left_out():
    noise = [{"level": level} for level in (None, 0.5, 0.2)]
    assert [row["level"] for row in sorted_levels(noise)] == [0, 0.2, 0.5]
    rotation = [{"level": level} for level in (None, [0, 360], [-60, 0], [0, 60])]
    assert [row["level"] for row in sorted_levels(rotation)] == [-30, 0, 30]
