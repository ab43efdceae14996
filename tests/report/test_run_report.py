"""The report of a run, from what is stored."""

import json
import shutil

import pytest

from randomset.errors import FileFormatError
from randomset.evaluation import Evaluation
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
