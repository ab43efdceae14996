"""Run folders of every version so far: they open, predict the same, and can be resumed."""

import json
import shutil
from typing import ClassVar

import numpy as np
import pytest
import torch

import randomset as rs
from randomset.data.sources import load_source
from randomset.errors import FileFormatError
from randomset.evaluation import Evaluation, Threshold
from randomset.models import load as load_model
from randomset.training.config import TrainConfig
from tests.commands import run
from tests.hardening.conftest import RUNS
from tests.hardening.test_fuzz import rewritten

VERSIONS = sorted(path.name for path in RUNS.iterdir() if (path / "config.json").exists())


@pytest.fixture(params=VERSIONS)
def old(request, tmp_path):
    return shutil.copytree(RUNS / request.param, tmp_path / "run")


def test_this_version_has_a_run():
    assert ".".join(rs.__version__.split(".")[:2]) in VERSIONS


def test_they_are_small_and_hold_no_pickle():
    for version in VERSIONS:
        files = [path for path in (RUNS / version).rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 150_000
        assert {path.suffix for path in files} <= {".json", ".jsonl", ".md", ".csv", ".safetensors", ".npz"}


def test_predictions_are_unchanged(old):
    stored_lines = [json.loads(line) for line in (old / "predictions.jsonl").read_text().splitlines()]
    network = load_model(old)
    found = network.predict(load_source("digits").inputs[: len(stored_lines)], progress=False)
    assert [found.budget.classes[label] for label in found.labels] == [line["label"] for line in stored_lines]
    stored = torch.tensor([list(line["probabilities"].values()) for line in stored_lines])
    torch.testing.assert_close(found.pignistic, stored, atol=1e-5, rtol=0)
    for row, line in zip(found.mass, stored_lines, strict=True):
        for part in line["masses"]:
            assert row[found.budget.index(part["set"])].item() == pytest.approx(part["mass"], abs=1e-5)
    known = Threshold.load(old).known(found.entropy)
    assert known.tolist() == [line["known"] for line in stored_lines]


def test_every_file_opens(old):
    assert TrainConfig.load(old).epochs == 2
    assert rs.Budget.load(old / "budget.json") == load_model(old).budget
    result = Evaluation.load(old)
    assert result["test"]["accuracy"] == json.loads((old / "test.json").read_text())["accuracy"]
    assert "accuracy" in result.to_markdown()


@pytest.mark.slow
def test_evaluated_reported_and_resumed(old, tmp_path):
    before = Evaluation.load(old)
    done = run("evaluate", "run", "--no-sweeps", "--no-figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = Evaluation.load(old)
    assert after["test"]["accuracy"] == before["test"]["accuracy"]
    for name, prediction in before.predictions.items():
        np.testing.assert_allclose(after.predictions[name].probabilities, prediction.probabilities, atol=1e-5)
    assert run("report", "run", cwd=tmp_path).returncode == 0
    done = run("train", "--out", "run", "--resume", cwd=tmp_path)
    assert (done.returncode, "is trained already" in done.stdout) == (0, True)
    (old / "test.json").unlink()  # as if it had been killed without a checkpoint: training restarts
    done = run("train", "--out", "run", "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((old / "test.json").read_text())["samples"] == before["test"]["samples"]


class TestNewerVersions:
    """Files of a newer version are refused, with the reason and a remedy."""

    READ: ClassVar = {
        "config.json": lambda run: TrainConfig.load(run),
        "budget.json": lambda run: rs.Budget.load(run / "budget.json"),
        "threshold.json": lambda run: Threshold.load(run),
        "evaluation.json": lambda run: Evaluation.load(run),
    }

    @pytest.mark.parametrize("name", READ)
    def test_documents(self, first_run, name):
        content = json.loads((first_run / name).read_text())
        (first_run / name).write_text(json.dumps(content | {"version": content["version"] + 1}))
        with pytest.raises(FileFormatError, match=r"newer version of randomset; got .*version 2.*Update"):
            self.READ[name](first_run)

    def test_splits(self, first_run):
        from randomset.data.splits import Parts

        content = json.loads((first_run / "split.json").read_text())
        (first_run / "split.json").write_text(json.dumps(content | {"version": 3}))
        with pytest.raises(FileFormatError, match="newer version of randomset"):
            Parts.load(first_run / "split.json", load_source("digits"))

    def test_networks(self, first_run):
        rewritten(first_run / "model.safetensors", "network", lambda header: header | {"version": 2})
        with pytest.raises(FileFormatError, match=r"the model was written by a newer version of randomset"):
            load_model(first_run)

    def test_results_of_the_paper(self, tmp_path):
        from reproduction.exhibit import Outcome

        path = Outcome("table-1", "tiny", 1, 1.0, 2.0, 0.0, {}).save(tmp_path)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))
        with pytest.raises(FileFormatError, match="newer version of randomset"):
            Outcome.load(path)

    def test_random_sets(self, tmp_path):
        from safetensors import safe_open
        from safetensors.torch import save_file

        path = rs.RandomSet.from_mass(torch.tensor([0.5, 0.3, 0.2]), rs.Budget.powerset(2)).save(
            tmp_path / "x"
        )
        with safe_open(str(path), "pt") as file:
            header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(tensors, path, {**header, "version": "2"})
        with pytest.raises(FileFormatError, match="newer version of randomset"):
            rs.RandomSet.load(path)

    @pytest.mark.slow
    def test_a_command(self, first_run, tmp_path):
        content = json.loads((first_run / "config.json").read_text())
        (first_run / "config.json").write_text(json.dumps(content | {"version": 7}))
        done = run("train", "--out", first_run, "--resume", cwd=tmp_path)
        assert done.returncode == 2
        assert "the configuration was written by a newer version of randomset" in done.stderr
        assert "Traceback" not in done.stderr


def test_every_document_has_a_format_and_a_version(first_run):
    bare = {"seconds.json", "origin.json"}  # a number alone, and a note of the tests
    for path in first_run.glob("*.json"):
        if path.name not in bare:
            content = json.loads(path.read_text())
            assert content["format"].startswith("randomset."), path.name
            assert content["version"] == 1
