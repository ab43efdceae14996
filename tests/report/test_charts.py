import numpy as np
import pytest

from randomset.errors import RandomSetError
from randomset.report import evaluation_report
from randomset.report.charts import (
    DetectionCurves,
    correct_predictions,
    reliability_bins,
    scores_of,
    sorted_levels,
)
from tests.report.conftest import content_of


def test_threshold_shares_match_the_evaluation(report, measured):
    _, result, _, _ = measured
    found, threshold = content_of(report)["threshold"], result["threshold"]
    assert found["score"] == threshold["score"]
    score = found["scores"]["entropy"]
    for name, part in score["sets"].items():
        exact = result.predictions[name].scores["entropy"].double()
        assert part["size"] == len(part["values"]) == len(exact)  # few enough to keep all
        assert part["values"] == pytest.approx(exact.sort().values.tolist(), rel=1e-6)
    assert score["accuracy"][-1] == pytest.approx(result["test"]["accuracy"], abs=1e-4)


def test_curves_start_and_end_at_the_corners(report):
    charts = {chart["title"]: chart for chart in content_of(report)["charts"]}
    for series in charts["ROC curve and AUROC"]["series"]:
        assert series["points"][0] == [0, 0]
        assert series["points"][-1] == [1, 1]
    assert [point[0] for point in charts["Accuracy under noise"]["series"][0]["points"]] == [0, 0.2, 0.5]
    assert [point[0] for point in charts["Accuracy under rotation"]["series"][0]["points"]] == [0, 45]


def test_reliability_of_test_and_unknown_inputs(discounted):
    _, result, _, _ = discounted
    (chart,) = (
        chart
        for chart in content_of(evaluation_report(result))["charts"]
        if chart["x"]["name"] == "reliability"
    )
    assert [series["name"] for series in chart["series"]] == ["test inputs", "bright"]
    assert chart["series"][0]["note"] == f"{100 * result['reliability']['test']['familiar']:.1f} % familiar"
    assert chart["series"][1]["note"] == "0.0 % familiar"
    bright = dict(map(tuple, chart["series"][1]["points"]))
    lowest = result.predictions["bright"].reliability.min().item()
    assert min(x for x, share in bright.items() if share > 0) == pytest.approx(lowest, abs=1e-4)
    assert chart["aids"] == [[[0.5, 0], [0.5, 100]]]


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
