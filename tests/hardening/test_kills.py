"""Commands that are killed and resumed give the same numbers; benchmarks/interruptions.py tests more."""

import shutil
import signal
import time
from tempfile import TemporaryDirectory

import pytest

from benchmarks.interruptions import differences, numbers_of_comparison, numbers_of_evaluation, numbers_of_run
from tests.commands import run, started

pytestmark = pytest.mark.slow

SMALL = ["--backbone", "mlp", "--width", "16", "--epochs", "4"]
TRAIN = ["train", "digits", "--out", "run", "--sets", "5", *SMALL]
RESUME = ["train", "--out", "run", "--resume"]
EVALUATE = ["evaluate", "run", "--no-sweeps", "--no-figures"]
COMPARE = ["compare", "digits", "--methods", "rsnn,softmax", "--seeds", "1", "--no-figures", *SMALL]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the commands give that nobody kills."""
    home = tmp_path_factory.mktemp("whole")
    for words in (TRAIN, EVALUATE, COMPARE):
        done = run(*words, cwd=home)
        assert done.returncode == 0, done.stderr
    return home


def kill(words, home, file):
    """Kill a command as soon as a file of its folder is there, or is another than before."""
    path = home / file
    before = path.stat().st_mtime_ns if path.exists() else None
    with TemporaryDirectory() as place:
        process = started(*words, cwd=home, place=place)
        while process.exitcode is None and (path.stat().st_mtime_ns if path.exists() else None) == before:
            time.sleep(0.002)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, f"it ended before {file} was written"


def end(words, home):
    done = run(*words, cwd=home)
    assert done.returncode == 0, done.stderr


def test_training(whole, tmp_path):
    kill(TRAIN, tmp_path, "run/first/checkpoints/last.ckpt")
    for file in ("run/first/checkpoints/previous.ckpt", "run/clusters.json", "run/checkpoints/last.ckpt"):
        kill(RESUME, tmp_path, file)
    kill(RESUME, tmp_path, "run/model.safetensors")
    done = run(*EVALUATE, cwd=tmp_path)  # a model is there, but not all of the training
    assert done.returncode == 2
    assert "is not finished" in done.stderr
    assert "--resume" in done.stderr
    end(RESUME, tmp_path)
    assert not differences(numbers_of_run(whole), numbers_of_run(tmp_path))
    assert not list((tmp_path / "run").glob(".*"))


def test_evaluation(whole, tmp_path):
    shutil.copytree(whole / "run", tmp_path / "run")
    for file in ("run/scores.npz", "run/evaluation.md"):
        kill(EVALUATE, tmp_path, file)
    end(EVALUATE, tmp_path)
    assert not differences(numbers_of_evaluation(whole), numbers_of_evaluation(tmp_path))


def test_comparison(whole, tmp_path):
    for file in (
        "comparison/rsnn/seed-0/checkpoints/last.ckpt",
        "comparison/softmax/seed-0/model.safetensors",
        "comparison/rsnn/seed-0/comparison/scores.npz",
    ):
        kill(COMPARE, tmp_path, file)
    end(COMPARE, tmp_path)
    assert not differences(numbers_of_comparison(whole), numbers_of_comparison(tmp_path))
