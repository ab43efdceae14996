"""A run as a Python object: trained, opened, measured, used."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import randomset as rs
from randomset._core.files import lock_folder
from randomset.errors import FileFormatError, RandomSetError
from randomset.evaluation import Evaluation, Threshold
from randomset.runs import Run
from randomset.runs.run import evaluate_run
from randomset.training.config import TrainConfig
from tests.hardening.conftest import RUNS
from tests.runs.conftest import SMALL


@pytest.fixture
def unknown(tmp_path):
    """Noise in a file."""
    np.savez(tmp_path / "noise.npz", images=np.random.default_rng(0).random((30, 8, 8)))
    return tmp_path / "noise.npz"


class TestOpening:
    def test_nothing_is_read_before_it_is_needed(self, tmp_path):
        run = Run(tmp_path / "nowhere")
        assert not run.is_trained
        assert run.seconds is None
        assert "nowhere" in repr(run)
        with pytest.raises(FileFormatError, match="nowhere"):
            _ = run.config
        with pytest.raises(FileFormatError, match=r"the run has no model file; got .*nowhere"):
            run.digest()

    def test_what_a_run_holds(self, run, trained):
        assert rs.Run is Run
        assert run.is_trained
        assert run.config.source == str(trained / "photos")
        assert run.model is run.model
        assert isinstance(run.threshold, Threshold)
        assert 0 < run.seconds < 600
        assert run.digest() == Run(trained / "run").digest() != Run(RUNS / "0.1").digest()

    def test_a_home_folder(self, monkeypatch, trained):
        monkeypatch.setenv("HOME", str(trained))
        assert Run("~/run").is_trained


class TestTraining:
    def test_files(self, trained):
        names = {path.name for path in (trained / "run").iterdir()}
        assert names >= {"config.json", "split.json", "model.safetensors", "threshold.json", "test.json"}
        assert json.loads((trained / "run" / "split.json").read_text())["version"] == 2

    def test_resume(self, run):
        before = json.loads((run.folder / "test.json").read_text())
        assert run.resume() is run  # nothing to do
        (run.folder / "test.json").unlink()
        assert run.resume().is_trained
        assert json.loads((run.folder / "test.json").read_text()) == before

    def test_a_relative_path_is_found_from_any_folder(self, trained, tmp_path, monkeypatch):
        monkeypatch.chdir(trained)
        run = Run.train(TrainConfig(source="photos", method="softmax", **SMALL), tmp_path / "run")
        assert run.config.source == str(trained / "photos")
        monkeypatch.chdir(tmp_path)
        assert len(run.data().test)

    def test_a_run_is_not_overwritten(self, run):
        before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
        with pytest.raises(FileFormatError, match="already contains a run"):
            Run.train(TrainConfig(source=run.config.source, epochs=7), run.folder)
        assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before

    def test_without_a_source(self, tmp_path):
        with pytest.raises(RandomSetError, match="no source was given"):
            Run.train(TrainConfig(), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_nothing_is_printed(self, tmp_path, capsys):
        Run.train(TrainConfig(source="digits", method="softmax", **SMALL), tmp_path / "run")
        printed = capsys.readouterr()
        assert printed.out == printed.err == ""

    def test_progress_is_logged(self, tmp_path, caplog):
        caplog.set_level("INFO", "randomset")
        Run.train(TrainConfig(source="digits", method="softmax", **SMALL), tmp_path / "run")
        assert "digits: 1168 samples to train on, 180 to validate" in caplog.text
        assert "On 359 held-out samples: accuracy" in caplog.text
        epochs = [record for record in caplog.records if record.name == "randomset.training.epochs"]
        assert [record.getMessage()[:8] for record in epochs] == ["epoch 1:", "epoch 2:"]


class TestMeasuring:
    def test_evaluation(self, run, unknown, caplog):
        caplog.set_level("INFO", "randomset")
        result = run.evaluate(ood={"noise": unknown}, samples=10, timing=False, keep=0.9)
        assert result["test"]["samples"] == 40
        assert result["test"]["accuracy"] == json.loads((run.folder / "test.json").read_text())["accuracy"]
        assert len(result["noise"]) == 8
        stored = Evaluation.load(run.folder)
        assert stored["ood"] == result["ood"]
        assert stored["run"]["ood"] == {"noise": str(unknown)}
        assert run.threshold is not None
        assert run.threshold.share == 0.9
        assert "conformal: 10 inputs" in caplog.text

    def test_a_copy_of_the_training_folder(self, run, trained, tmp_path):
        copy = shutil.copytree(trained / "photos", tmp_path / "copy")
        options = {"sweeps": False, "timing": False, "out": tmp_path / "results"}
        result = run.evaluate(test=copy, **options)
        assert "test: 160 of 200 inputs were used in training and are excluded" in result["remarks"]
        assert result["test"] == run.evaluate(**options)["test"]
        assert not (run.folder / "evaluation.json").exists()

    def test_a_run_made_before(self, tmp_path):
        run = Run(shutil.copytree(RUNS / "0.1", tmp_path / "run"))
        before = Evaluation.load(run.folder)["test"]["accuracy"]
        assert run.evaluate(sweeps=False, timing=False)["test"]["accuracy"] == before


def test_predictions(run, unknown):
    prediction = run.predict(unknown, batch_size=7)
    assert prediction.probabilities.shape == (30, 3)
    inputs = run.load(unknown, labelled=False).inputs
    torch.testing.assert_close(prediction.probabilities, run.model.predict(inputs).pignistic)
    with pytest.raises(RandomSetError, match="labels"):
        run.load(unknown)
    for data in (inputs, inputs.numpy(), TensorDataset(inputs), [inputs[:20], inputs[20:]]):
        torch.testing.assert_close(run.predict(data).probabilities, prediction.probabilities)


def test_only_data_that_can_be_found_again_are_evaluated(run):
    for data in ({"test": (torch.rand(3, 1, 8, 8), torch.arange(3))}, {"ood": {"x": torch.rand(3, 1, 8, 8)}}):
        with pytest.raises(RandomSetError, match=r"expected a name or path\. .*rs\.evaluate\(run\.model"):
            run.evaluate(**data)


def test_reports(run, tmp_path):
    with pytest.raises(FileFormatError, match="has not been evaluated"):
        run.report()
    run.evaluate(sweeps=False, timing=False)
    assert run.report() == run.folder / "report.html"
    page = run.report(tmp_path / "elsewhere").read_text(encoding="utf-8")
    assert "<h2>Most certain</h2>" in page


def test_data_and_files(run, tmp_path):
    noise = np.random.default_rng(0).random((30, 8, 8))
    noise[0] = run.data().test.inputs[0].numpy() / 255  # a test input among them is left out
    np.savez(
        tmp_path / "noise.npz", images=np.concatenate([noise, np.random.default_rng(1).random((90, 8, 8))])
    )
    measured = evaluate_run(
        run, ood={"noise": tmp_path / "noise.npz"}, sweeps=False, timing=False, out=tmp_path / "results"
    )
    assert len(measured.test) == 40
    assert len(measured.ood["noise"]) == len(measured.result.predictions["noise"]) == 119
    names = ["evaluation.json", "evaluation.md", "scores.npz", "threshold.json"]
    assert measured.files == [tmp_path / "results" / name for name in names]
    assert all(path.exists() for path in measured.files)


def test_one_process_at_a_time(run):
    with lock_folder(run.folder), pytest.raises(RandomSetError, match="another process"):
        evaluate_run(run)


def test_images_beyond_the_range_of_pixels(tmp_path, caplog):
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", images=draw.normal(size=(60, 8, 8)), labels=np.arange(60) % 3)
    config = TrainConfig(source=str(tmp_path / "x.npz"), **SMALL)
    run = Run.train(config, tmp_path / "run")
    caplog.set_level("INFO", "randomset")
    result = evaluate_run(run, timing=False).result
    assert "noise" not in result
    assert "Noise and rotation are skipped" in caplog.text


def test_attacks_at_given_strengths(run):
    result = evaluate_run(run, attacks=(0.1,), samples=5, sweeps=False, timing=False).result
    assert "attacks" in result
