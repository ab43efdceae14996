"""The report of a run, from what is stored."""

import json
import shutil

import pytest
import torch

from randomset.errors import FileFormatError
from randomset.evaluation import Evaluation, evaluate
from randomset.report import gallery_of
from randomset.report.run_report import report_of_run, write_run_report
from randomset.runs import Run
from tests.hardening.conftest import RUNS


@pytest.fixture
def run(tmp_path):
    return Run(shutil.copytree(RUNS / "0.1", tmp_path / "run"))


def test_from_stored_numbers(run):
    path = report_of_run(run, run.folder)
    page = path.read_text(encoding="utf-8")
    assert path == run.folder / "report.html"
    for part in ("<h2>Most certain</h2>", "Where classes overlap", "Sets of classes in the budget"):
        assert part in page


def test_without_the_data_there_are_no_samples(run, tmp_path, caplog):
    numbers = json.loads((run.folder / "evaluation.json").read_text())
    numbers["run"]["test_source"] = "nowhere.npz"
    (run.folder / "evaluation.json").write_text(json.dumps(numbers))
    page = report_of_run(run, tmp_path / "elsewhere").read_text(encoding="utf-8")
    assert "Surest" not in page
    assert "The report has no samples of test: no such data" in caplog.text


def test_clusters_that_cannot_be_read(run, caplog):
    for content in ("", "[]", '{"classes": []}', '{"classes": ["a"], "points": [[1]], "radius": 1}'):
        caplog.clear()
        (run.folder / "clusters.json").write_text(content)
        write_run_report(run, run.folder, Evaluation.load(run.folder), None, {})
        assert "ellipsoids are not drawn" in caplog.text
    (run.folder / "clusters.json").unlink()
    caplog.clear()
    write_run_report(run, run.folder, Evaluation.load(run.folder), None, {})
    assert caplog.text == ""


def test_a_folder_without_an_evaluation(run, tmp_path):
    with pytest.raises(FileFormatError, match="the run folder does not exist"):
        report_of_run(Run(tmp_path / "nowhere"), tmp_path)
    (run.folder / "evaluation.json").unlink()
    with pytest.raises(FileFormatError, match=r"has not been evaluated; .*randomset evaluate"):
        report_of_run(run, run.folder)
    (run.folder / "comparison.json").write_text("{}")
    with pytest.raises(FileFormatError, match="the folder of a comparison"):
        report_of_run(run, run.folder)


def test_groups_are_chosen_by_entropy_and_correctness(measured):
    network, result, tested, unknown = measured
    groups = {name: samples for name, _, samples in gallery_of(network, result, tested, unknown, count=4)}
    entropy = result.predictions["test"].scores["entropy"].double()
    assert [sample["entropy"] for sample in groups["Most certain"]] == pytest.approx(
        entropy.sort().values[:4].tolist(), abs=1e-3
    )
    assert groups["Least certain"][0]["entropy"] == pytest.approx(entropy.max().item(), abs=1e-3)
    assert all(sample["label"] != sample["truth"] for sample in groups["Confidently wrong"])
    assert groups["bright: least certain"][0]["truth"] == ""


def test_samples_show_their_belief_function(measured):
    network, result, tested, unknown = measured
    (_, _, samples), *_ = gallery_of(network, result, tested, unknown, count=2)
    for sample in samples:
        assert sum(mass for _, mass, _ in sample["sets"]) == pytest.approx(1, abs=0.03)
        assert all(mass <= belief + 1e-4 for _, mass, belief in sample["sets"])
        assert all(low - 1e-4 <= p <= high + 1e-4 for _, p, low, high in sample["classes"])
        assert sample["image"].startswith("iVBOR")  # a PNG in base64
        assert sample["known"] is None  # without a threshold


def test_samples_show_their_reliability(measured, discounted):
    network, result, tested, unknown = discounted
    groups = {name: samples for name, _, samples in gallery_of(network, result, tested, unknown, count=3)}
    least = result.predictions["test"].reliability.sort().values[:3].tolist()
    shown = [
        float(sample["reliability"].split("reliability ")[1].split(",")[0])
        for sample in groups["Least familiar"]
    ]
    assert shown == pytest.approx(least, abs=0.0051)
    assert groups["bright: most certain"][0]["reliability"].startswith(
        "unlike the training data: reliability 0.0"
    )
    network, result, tested, unknown = measured
    groups = {name: samples for name, _, samples in gallery_of(network, result, tested, unknown, count=1)}
    assert "Least familiar" not in groups
    assert "reliability" not in groups["Most certain"][0]


def test_samples_of_a_text_model_show_their_text(measured):
    network, result, tested, unknown = measured
    groups = gallery_of(
        network, result, tested, unknown, words=lambda sample: f"{sample.numel()} pixels", count=1
    )
    assert groups[0][2][0]["text"] == "64 pixels"


def test_other_models_show_probabilities_only(measured):
    _, _, tested, _ = measured
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    result = evaluate(model, tested, progress=False)
    (_, _, samples), *_ = gallery_of(model, result, tested, {}, count=1)
    assert samples[0]["sets"] == []
    assert "width" not in samples[0]
