"""Stopping and going on: at any batch, by any means, with the weights of a run that never stopped."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

import randomset as rs
from randomset import backbones
from randomset.errors import FileFormatError, RandomSetError, RandomSetWarning
from randomset.training import TrainingStopped

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    return TensorDataset(x[:200], y[:200]), TensorDataset(x[200:300], y[200:300])


def network(budget=None):
    torch.manual_seed(0)
    budget = budget or rs.Budget.from_sets([{3, 8}, {4, 9}, {1, 7, 8}], 10)
    return rs.RandomSetNetwork(backbones.mlp(64, (16,), dropout=0.3), budget)


def train(model, *data, **options):
    size = None if isinstance(data[0], DataLoader) else 64
    return rs.fit(model, *data, **{"epochs": 3, "batch_size": size, "progress": False, **options})


def run_checkpoints():
    """Fetch the class late: it brings Lightning, and the fast tests collect this file."""
    from randomset.training.checkpoints import RunCheckpoints

    return RunCheckpoints


def without_speed(history):
    return [{k: v for k, v in row.items() if k != "samples_per_second"} for row in history]


def assert_same(one, two):
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name


class TestExactResume:
    @pytest.mark.parametrize("validated", [True, False])
    @pytest.mark.parametrize("recipe", ["fast", "paper"])
    def test_from_every_checkpoint(self, digits, tmp_path, monkeypatch, validated, recipe):
        kept = []
        write = run_checkpoints()._write

        def keeping(self, trainer, name, **options):
            write(self, trainer, name, **options)
            if name == "last.ckpt":
                kept.append(tmp_path / f"{len(kept)}.ckpt")
                shutil.copyfile(self.folder / name, kept[-1])

        monkeypatch.setattr(run_checkpoints(), "_write", keeping)
        data = digits if validated else digits[:1]
        whole = network()
        report = train(whole, *data, out=tmp_path / "whole", checkpoint_steps=1, recipe=recipe)
        places = list(kept)
        assert len(places) == 3 * 4  # after each of the first three of four batches, and after the epoch
        for place in places:
            again = network()
            resumed = train(again, *data, out=tmp_path / "again", resume=place, recipe=recipe)
            assert_same(whole, again)
            assert without_speed(resumed.history) == without_speed(report.history)

    def test_a_loader_is_gone_on_with_too(self, digits, tmp_path, monkeypatch):
        data = DataLoader(digits[0], 64, shuffle=True)
        whole = network()
        train(whole, data)
        stopped = network()
        with monkeypatch.context() as patch:
            patch.setattr(run_checkpoints(), "on_train_batch_end", _stop_at(4))
            with pytest.raises(TrainingStopped, match="resume=True"):
                train(stopped, data, out=tmp_path)
        again = network()
        train(again, data, out=tmp_path, resume=True)
        assert_same(whole, again)

    def test_a_run_that_is_done_is_done(self, digits, tmp_path):
        first = network()
        report = train(first, *digits, out=tmp_path)
        again = network()
        resumed = train(again, *digits, out=tmp_path, resume=True)
        assert_same(first, again)
        assert without_speed(resumed.history) == without_speed(report.history)

    def test_more_epochs_where_the_schedule_allows_it(self, digits, tmp_path):
        recipe = rs.Recipe(schedule="constant")
        whole = network()
        train(whole, *digits, recipe=recipe, epochs=5)
        part = network()
        train(part, *digits, recipe=recipe, epochs=2, out=tmp_path)
        again = network()
        report = train(again, *digits, recipe=recipe, epochs=5, out=tmp_path, resume=True)
        assert_same(whole, again)
        assert len(report.history) == 5
        assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 6

    def test_nothing_to_go_on_from_is_a_start(self, digits, tmp_path):
        assert len(train(network(), *digits, out=tmp_path, resume=True).history) == 3

    @pytest.mark.parametrize("workers", [0, 1])
    def test_random_transforms(self, digits, tmp_path, monkeypatch, workers):
        assert_resumes_exactly(monkeypatch, tmp_path, lambda: (Noisy(digits[0]), digits[1]), workers=workers)

    def test_other_samplers_from_the_last_epoch(self, digits, tmp_path, monkeypatch):
        sampler = WeightedRandomSampler(torch.rand(200, generator=torch.Generator().manual_seed(0)), 200)
        assert_resumes_exactly(monkeypatch, tmp_path, lambda: (DataLoader(digits[0], 64, sampler=sampler),))

    def test_data_modules_from_the_last_epoch(self, digits, tmp_path, monkeypatch):
        from lightning import LightningDataModule

        class Module(LightningDataModule):
            def train_dataloader(self):
                return DataLoader(digits[0], 64, shuffle=True)

            def val_dataloader(self):
                return DataLoader(digits[1], 64)

        assert_resumes_exactly(monkeypatch, tmp_path, lambda: (Module(),))

    def test_accumulated_gradients(self, digits, tmp_path, monkeypatch):
        options = {"accumulate_grad_batches": 2, "checkpoint_steps": 1}
        assert_resumes_exactly(monkeypatch, tmp_path, lambda: digits, **options)

    def test_epochs_that_are_cut_short(self, digits, tmp_path, monkeypatch):
        assert_resumes_exactly(monkeypatch, tmp_path, lambda: digits, step=7, limit_train_batches=3)

    def test_the_network_may_be_calibrated_already(self, digits, tmp_path):
        recipe = rs.Recipe(schedule="constant")
        model = network()
        train(model, *digits, out=tmp_path, recipe=recipe, epochs=2)
        assert model.calibration is not None
        train(model, *digits, out=tmp_path, recipe=recipe, epochs=3, resume=True)
        whole = network()
        train(whole, *digits, recipe=recipe)
        assert_same(whole, model)


class Noisy(Dataset):
    """Adds noise to what it gives, as a random transform does."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, place):
        x, y = self.data[place]
        return x + 0.1 * torch.randn(64) + 0.1 * random.random(), y


def assert_resumes_exactly(monkeypatch, folder, make_data, step=9, **options):
    """Train in one go; train until a step, stop, go on; compare."""
    whole = network()
    train(whole, *make_data(), out=folder / "whole", **options)
    with monkeypatch.context() as patch:
        patch.setattr(run_checkpoints(), "on_train_batch_end", _stop_at(step))
        with pytest.raises(TrainingStopped):
            train(network(), *make_data(), out=folder / "part", **options)
    torch.rand(5)
    random.random()
    again = network()
    train(again, *make_data(), out=folder / "part", resume=True, **options)
    assert_same(whole, again)


def _stop_at(step):
    original = run_checkpoints().on_train_batch_end

    def stopping(self, trainer, engine, *arguments):
        epoch, batch = trainer.current_epoch, trainer.fit_loop.epoch_loop.batch_progress.current.ready
        if epoch * trainer.num_training_batches + batch >= step:
            self.received = signal.SIGTERM
        original(self, trainer, engine, *arguments)

    return stopping


class TestFiles:
    @pytest.fixture
    def run(self, digits, tmp_path):
        train(network(), *digits, out=tmp_path)
        return tmp_path / "checkpoints"

    def test_last_previous_and_best(self, run):
        assert sorted(p.name for p in run.iterdir()) == ["best.ckpt", "last.ckpt", "previous.ckpt"]
        epochs = {p.name: torch.load(p, weights_only=True)["randomset"]["epoch"] for p in run.iterdir()}
        assert (epochs["last.ckpt"], epochs["previous.ckpt"]) == (3, 2)

    def test_the_best_weights_can_be_kept(self, digits, tmp_path):
        # A learning rate that explodes makes the first epoch the best.
        recipe = rs.Recipe(schedule="steps", milestones=(1,), factor=1e5, learning_rate=3e-3)
        model = network()
        with pytest.warns(RandomSetWarning, match="diverged"):
            report = train(model, *digits, recipe=recipe, out=tmp_path, keep="best", calibrated=False)
        assert report.best["epoch"] == 1
        x, y = digits[1].tensors
        accuracy = (model.predict(x).labels == y).float().mean().item()
        assert accuracy == pytest.approx(report.best["val_accuracy"])
        assert report.best["val_accuracy"] > report.last["val_accuracy"]

    @pytest.mark.parametrize("size", [0, 1, 100, 0.5, -1])
    def test_the_one_before_a_truncated_checkpoint(self, digits, run, size):
        whole = (run / "last.ckpt").read_bytes()
        cut = whole[: int(size * len(whole)) if size == 0.5 else size]
        (run / "last.ckpt").write_bytes(cut)
        before = (run / "previous.ckpt").read_bytes()
        with pytest.raises(FileFormatError, match=r"damaged or not a checkpoint.*last\.ckpt"):
            train(network(), *digits, out=run.parent, resume=run / "last.ckpt")
        assert (run / "last.ckpt").read_bytes() == cut
        model = network()
        with pytest.warns(
            RandomSetWarning, match=r"last\.ckpt.*Resuming from .*previous\.ckpt, after epoch 2"
        ):
            assert len(train(model, *digits, out=run.parent, resume=True).history) == 3
        assert (run / "previous.ckpt").read_bytes() == before  # and not the one that is worse
        again = network()
        train(again, *digits, out=run.parent, resume=True)
        assert_same(model, again)

    def test_a_bit_of_the_weights(self, digits, run):
        """It is no matter to torch, which would go on with other weights."""
        whole = bytearray((run / "last.ckpt").read_bytes())
        weights = torch.load(run / "last.ckpt", weights_only=True)["state_dict"][
            "module.head.layers.0.weight"
        ]
        place = whole.index(weights.numpy().tobytes())
        whole[place + 2] ^= 1
        (run / "last.ckpt").write_bytes(whole)
        assert torch.load(run / "last.ckpt", weights_only=True)
        with pytest.warns(RandomSetWarning, match=r"is damaged\. Resuming from .*previous\.ckpt"):
            train(network(), *digits, out=run.parent, resume=True)

    def test_no_good_checkpoint(self, digits, run):
        for name in ("last.ckpt", "previous.ckpt"):
            (run / name).write_bytes(b"half")
        kept = {path: path.read_bytes() for path in run.parent.rglob("*") if path.is_file()}
        with pytest.raises(
            FileFormatError, match=r"last\.ckpt.*previous\.ckpt.*Start again in another folder"
        ):
            train(network(), *digits, out=run.parent, resume=True)
        assert {path: path.read_bytes() for path in run.parent.rglob("*") if path.is_file()} == kept

    def test_a_last_checkpoint_that_is_lost(self, digits, run):
        (run / "last.ckpt").unlink()
        with pytest.warns(RandomSetWarning, match=r"no checkpoint to resume from.*previous\.ckpt"):
            assert len(train(network(), *digits, out=run.parent, resume=True).history) == 3

    def test_killed_before_the_next_checkpoint(self, digits, run, monkeypatch):
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
                train(network(), *digits, out=run.parent, resume=True)
        assert (run / "previous.ckpt").read_bytes() == before

    def test_fewer_epochs_than_were_seen(self, digits, tmp_path):
        recipe = rs.Recipe(schedule="constant")
        train(network(), *digits, out=tmp_path, recipe=recipe)
        with pytest.raises(RandomSetError, match=r"more epochs than requested; got epochs=2; expected 3"):
            train(network(), *digits, out=tmp_path, recipe=recipe, epochs=2, resume=True)

    def test_foreign_checkpoints(self, digits, run):
        for content in ({"state_dict": {}}, [1, 2], {"randomset": {"format": "other"}}):
            torch.save(content, run / "last.ckpt")
            with pytest.raises(FileFormatError, match=r"not written by randomset.*last\.ckpt"):
                train(network(), *digits, out=run.parent, resume=run / "last.ckpt")

    def test_a_checkpoint_never_runs_code(self, digits, run, tmp_path):
        class Evil:
            def __reduce__(self):
                return (exec, (f"open({str(tmp_path / 'evil')!r}, 'w')",))

        torch.save({"randomset": Evil()}, run / "last.ckpt")
        with pytest.raises(FileFormatError, match=r"last\.ckpt"):
            train(network(), *digits, out=run.parent, resume=run / "last.ckpt")
        assert not (tmp_path / "evil").exists()

    def test_a_checkpoint_of_another_network(self, digits, run):
        other = network(rs.Budget.from_sets([{3, 8}], 10))
        with pytest.raises(FileFormatError, match="a different network"):
            train(other, *digits, out=run.parent, resume=True)
        swapped = network(rs.Budget.from_sets([{2, 8}, {4, 9}, {1, 7, 8}], 10))  # the same shapes
        with pytest.raises(RandomSetError, match=r"(different network|another budget)"):
            train(swapped, *digits, out=run.parent, resume=True)

    def test_another_recipe_or_seed(self, digits, run):
        with pytest.raises(RandomSetError, match="batch_size 64 → 32"):
            train(network(), *digits, out=run.parent, resume=True, batch_size=32)
        with pytest.raises(RandomSetError, match="the seed differs"):
            train(network(), *digits, out=run.parent, resume=True, seed=1)

    def test_other_data_or_other_frozen_parts(self, digits, run):
        with pytest.raises(
            RandomSetError, match=r"training data differ from those of the checkpoint.*'samples': 100"
        ):
            train(network(), digits[1], digits[1], out=run.parent, resume=True)
        with pytest.raises(RandomSetError, match="Freeze the same parts"):
            train(network().freeze_backbone(), *digits, out=run.parent, resume=True)

    def test_a_checkpoint_without_its_parts(self, digits, run):
        content = torch.load(run / "last.ckpt", weights_only=True)
        del content["randomset"]["seed"]
        torch.save(content, run / "last.ckpt")
        with pytest.raises(FileFormatError, match=r"incomplete or invalid.*last\.ckpt"):
            train(network(), *digits, out=run.parent, resume=run / "last.ckpt")

    def test_a_run_is_not_overwritten(self, digits, run):
        before = (run / "last.ckpt").read_bytes()
        with pytest.raises(FileFormatError, match="resume=True"):
            train(network(), *digits, out=run.parent)
        assert (run / "last.ckpt").read_bytes() == before

    def test_a_path_that_is_not_there(self, digits, run):
        with pytest.raises(FileFormatError, match="no checkpoint"):
            train(network(), *digits, out=run.parent, resume=run / "none.ckpt")

    def test_a_failed_write_keeps_the_last_one(self, digits, tmp_path, monkeypatch):
        train(network(), *digits, out=tmp_path, epochs=1, recipe=rs.Recipe(schedule="constant"))
        before = (tmp_path / "checkpoints" / "last.ckpt").read_bytes()
        from lightning import Trainer

        def full(self, path, *arguments, **options):
            raise OSError("no space left on device")

        monkeypatch.setattr(Trainer, "save_checkpoint", full)
        with pytest.raises(OSError, match="no space"):
            train(network(), *digits, out=tmp_path, recipe=rs.Recipe(schedule="constant"), resume=True)
        assert (tmp_path / "checkpoints" / "last.ckpt").read_bytes() == before


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
