"""An evaluation of a run, with its data and files."""

import numpy as np
import pytest

from randomset._core.files import lock_folder
from randomset.errors import RandomSetError
from randomset.runs import Run
from randomset.runs.evaluation import evaluate_run
from randomset.training.config import TrainConfig
from tests.runs.conftest import SMALL


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
