"""Checkpoints: which there are, and that neither errors nor signals damage them."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

import randomset as rs
from randomset.errors import RandomSetWarning
from tests.training.conftest import assert_same, small_network, train_small

pytestmark = pytest.mark.slow


class TestFiles:
    @pytest.fixture
    def run(self, small_digits, tmp_path):
        train_small(small_network(), *small_digits, out=tmp_path)
        return tmp_path / "checkpoints"

    def test_last_previous_and_best(self, run):
        assert sorted(p.name for p in run.iterdir()) == ["best.ckpt", "last.ckpt", "previous.ckpt"]
        epochs = {p.name: torch.load(p, weights_only=True)["randomset"]["epoch"] for p in run.iterdir()}
        assert (epochs["last.ckpt"], epochs["previous.ckpt"]) == (3, 2)

    def test_the_best_weights_can_be_kept(self, small_digits, tmp_path):
        # A learning rate that explodes makes the first epoch the best.
        recipe = rs.Recipe(schedule="steps", milestones=(1,), factor=1e5, learning_rate=3e-3)
        model = small_network()
        with pytest.warns(RandomSetWarning, match="diverged"):
            report = train_small(
                model, *small_digits, recipe=recipe, out=tmp_path, keep="best", calibrated=False
            )
        assert report.best["epoch"] == 1
        x, y = small_digits[1].tensors
        accuracy = (model.predict(x).labels == y).float().mean().item()
        assert accuracy == pytest.approx(report.best["val_accuracy"])
        assert report.best["val_accuracy"] > report.last["val_accuracy"]

    def test_killed_before_the_next_checkpoint(self, small_digits, run, monkeypatch):
        """A damaged checkpoint never takes the place of the one before it."""
        (run / "last.ckpt").write_bytes(b"half")
        before = (run / "previous.ckpt").read_bytes()
        real = os.replace

        def dying(source, target):
            if str(target).endswith("last.ckpt"):
                raise RuntimeError("killed")
            real(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", dying)
            with (
                pytest.warns(RandomSetWarning, match="Resuming from"),
                pytest.raises(RuntimeError, match="killed"),
            ):
                train_small(small_network(), *small_digits, out=run.parent, resume=True)
        assert (run / "previous.ckpt").read_bytes() == before

    def test_a_failed_write_keeps_the_last_one(self, small_digits, tmp_path, monkeypatch):
        train_small(
            small_network(), *small_digits, out=tmp_path, epochs=1, recipe=rs.Recipe(schedule="constant")
        )
        before = (tmp_path / "checkpoints" / "last.ckpt").read_bytes()
        from lightning import Trainer

        def full(self, path, *arguments, **options):
            raise OSError("no space left on device")

        monkeypatch.setattr(Trainer, "save_checkpoint", full)
        with pytest.raises(OSError, match="no space"):
            train_small(
                small_network(),
                *small_digits,
                out=tmp_path,
                recipe=rs.Recipe(schedule="constant"),
                resume=True,
            )
        assert (tmp_path / "checkpoints" / "last.ckpt").read_bytes() == before


SCRIPT = """
import sys, time, torch
import randomset as rs
from randomset import backbones
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

class Slowly(rs.RandomSetNetwork):
    def forward(self, *inputs):
        if self.training:
            print("step", flush=True)
            time.sleep(float(sys.argv[2]))
        return super().forward(*inputs)

data = load_digits()
x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
torch.manual_seed(0)
network = Slowly(backbones.mlp(64, (32,), dropout=0.3), rs.Budget.from_sets([{3, 8}, {4, 9}], 10))
report = rs.fit(
    network, TensorDataset(x[:384], y[:384]), TensorDataset(x[400:500], y[400:500]), epochs=4, batch_size=64,
    out=sys.argv[1], resume=True, checkpoint_steps=1, progress=False,
)
network.save(sys.argv[1])
print("done", len(report.history))
"""


def start(tmp_path, pause):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, str(script), str(tmp_path / "run"), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_steps(process, count):
    seen = 0
    while seen < count:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        seen += line == "step\n"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    process = start(folder, 0)
    _, error = process.communicate()
    assert process.returncode == 0, error
    return rs.RandomSetNetwork.load(folder / "run")


class TestSignals:
    def test_killed_in_the_middle_of_an_epoch(self, tmp_path, unbroken):
        process = start(tmp_path, 0.2)
        wait_for_steps(process, 9)  # of 4 epochs with 6 batches
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        state = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["randomset"]
        assert state["epoch"] == 1
        assert state["position"] in (1, 2)
        again = start(tmp_path, 0)
        out, error = again.communicate()
        assert again.returncode == 0, error
        assert "done 4" in out
        assert out.count("step") < 24 - 6
        assert_same(unbroken, rs.RandomSetNetwork.load(tmp_path / "run"))

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_asked_to_stop(self, tmp_path, unbroken, number):
        process = start(tmp_path, 0.2)
        wait_for_steps(process, 8)
        time.sleep(0.05)
        process.send_signal(number)
        out, error = process.communicate()
        assert process.returncode not in (0, None)
        assert f"stopped by {number.name}" in error
        assert "last.ckpt" in error
        assert "resume=True" in error
        again = start(tmp_path, 0)
        out, error = again.communicate()
        assert again.returncode == 0, error
        assert out.count("step") <= 24 - 7
        assert_same(unbroken, rs.RandomSetNetwork.load(tmp_path / "run"))
