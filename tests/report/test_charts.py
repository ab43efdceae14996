import pytest

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
