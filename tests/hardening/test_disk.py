"""Disks that are full, and folders that nobody may write to: a clear error, and all that was there stays."""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import randomset as rs
from randomset import backbones
from randomset._core.files import replacing
from randomset.errors import RandomSetError, WriteError
from tests.commands import run, started

FULL = OSError(errno.ENOSPC, "No space left on device")


def contents(folder):
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


class TestReplacing:
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EFBIG, errno.EIO])
    def test_the_old_file_stays(self, tmp_path, code):
        path = tmp_path / "old"
        path.write_text("good")

        def write():
            with replacing(path) as temporary:
                temporary.write_text("ba")
                raise OSError(code, os.strerror(code))

        with pytest.raises(WriteError, match=rf"cannot be written; got .*old \({os.strerror(code)}\)"):
            write()
        assert contents(tmp_path) == {path: b"good"}

    def test_it_is_an_error_of_ours_and_of_the_system(self):
        error = WriteError("the file cannot be written", "x", FULL)
        assert isinstance(error, RandomSetError)
        assert isinstance(error, OSError)
        assert "Free some space" in str(error)

    def test_a_folder_that_refuses(self, tmp_path, monkeypatch):
        def refuse(*arguments, **options):
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr("tempfile.mkstemp", refuse)
        with pytest.raises(WriteError, match=r"Read-only file system.*choose another location"):
            rs.Budget.singletons(3).save(tmp_path / "budget.json")
        assert not contents(tmp_path)


class TestPowerCuts:
    """Contents reach the disk before the name does, or a name could be left with nothing in it."""

    @pytest.fixture
    def steps(self, monkeypatch):
        """What is asked of the system, in order."""
        seen, sync, replace = [], os.fsync, os.replace

        def noted_sync(file):
            place = Path(os.readlink(f"/proc/self/fd/{file}"))
            seen.append(("sync", place.name, None if place.is_dir() else place.stat().st_size))
            sync(file)

        def noted_replace(source, target):
            replace(source, target)
            seen.append(("replace", Path(target).name, Path(target).stat().st_size))

        if not Path("/proc/self/fd").exists():
            pytest.skip("there is no /proc")
        monkeypatch.setattr(os, "fsync", noted_sync)
        monkeypatch.setattr(os, "replace", noted_replace)
        return seen

    def test_contents_name_folder(self, tmp_path, steps):
        with replacing(tmp_path / "a") as temporary:
            temporary.write_text("whole")
        (first, part, size), *rest = steps
        assert (first, part.startswith(".a."), size) == ("sync", True, 5)
        assert rest == [("replace", "a", 5), ("sync", tmp_path.name, None)]

    def test_checkpoints(self, tmp_path, steps):
        x, y = torch.rand(16, 4), torch.arange(16) % 3
        network = rs.RandomSetNetwork(backbones.mlp(4, (3,)), rs.Budget.singletons(3))
        rs.fit(network, (x, y), epochs=2, out=tmp_path, progress=False, workers=0, logger=False)
        names = {"last.ckpt": 2, "metrics.csv": 2, "model.safetensors": 1}
        for name, count in names.items():
            places = [place for place, step in enumerate(steps) if step[:2] == ("replace", name)]
            assert len(places) == count
            for place in places:
                (before, _, size), (_, _, now), (after, folder, _) = steps[place - 1 : place + 2]
                assert (before, after, size) == ("sync", "sync", now)
                assert folder == ("checkpoints" if name.endswith("ckpt") else tmp_path.name)

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
    def test_a_file_system_that_cannot(self, tmp_path, monkeypatch, code):
        def refuse(file):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", refuse)
        with replacing(tmp_path / "a") as temporary:
            temporary.write_text("whole")
        assert contents(tmp_path) == {tmp_path / "a": b"whole"}

    def test_a_disk_that_is_full_after_all(self, tmp_path, monkeypatch):
        def full(file):
            raise FULL

        (tmp_path / "a").write_text("good")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match="No space left"), replacing(tmp_path / "a") as temporary:
            temporary.write_text("ba")
        assert contents(tmp_path) == {tmp_path / "a": b"good"}


def test_what_safetensors_says_of_a_disk(tmp_path):
    resource = pytest.importorskip("resource")
    network = rs.RandomSetNetwork(backbones.mlp(4, (3,)), rs.Budget.singletons(3))
    network.save(tmp_path)
    before, limits = contents(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))  # Python ignores the signal
    try:
        with pytest.raises(WriteError, match=r"model\.safetensors \(File too large"):
            network.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_a_checkpoint_that_finds_no_room(tmp_path, monkeypatch):
    """The one before is whole, and the training goes on from it to the very same weights."""
    import lightning

    torch.manual_seed(0)
    x, y = torch.rand(96, 4), torch.arange(96) % 3

    def trained(folder, **options):
        torch.manual_seed(0)
        network = rs.RandomSetNetwork(backbones.mlp(4, (8,)), rs.Budget.powerset(3))
        data = (TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:]))
        rs.fit(network, *data, epochs=4, batch_size=32, out=folder, progress=False, **options)
        return network

    whole = trained(tmp_path / "whole")
    write, written = lightning.Trainer.save_checkpoint, []

    def full(self, path, *arguments, **options):
        written.append(path)
        if len(written) > 4:
            Path(path).write_bytes(b"half of it")
            raise FULL
        write(self, path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(lightning.Trainer, "save_checkpoint", full)
        with pytest.raises(WriteError, match=r"cannot write the checkpoint; got .*No space left.*Free"):
            trained(tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
    again = trained(tmp_path / "run", resume=True)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


@pytest.mark.slow
class TestCommands:
    """Each meets a file that can be no larger; it ends with 2, without a traceback, and harms nothing."""

    @pytest.fixture(autouse=True)
    def _limits(self):
        pytest.importorskip("resource")

    def refused(self, *words, cwd, most, what):
        done = run(*words, cwd=cwd, most=most)
        assert done.returncode == 2, done
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("Error: "), done.stderr
        for part in (what, "File too large", "ulimit"):
            assert part in done.stderr, done.stderr

    def test_training(self, tmp_path):
        words = ["train", "digits", "--out", "run", "--backbone", "mlp", "--width", "256", "--epochs", "1"]
        self.refused(*words, "--sets", "5", cwd=tmp_path, most=60_000, what="checkpoints/best.ckpt")
        done = run("train", "--out", "run", "--resume", cwd=tmp_path)
        assert done.returncode == 0 or "no run to resume" in done.stderr

    def test_comparison(self, tmp_path):
        words = ["compare", "digits", "--methods", "softmax", "--seeds", "1", "--epochs", "1", "--no-figures"]
        small = ["--backbone", "mlp", "--width", "256"]
        self.refused(*words, *small, cwd=tmp_path, most=60_000, what="checkpoints/best.ckpt")

    def test_evaluation(self, first_run):
        before = contents(first_run)
        words = ["evaluate", first_run, "--no-sweeps", "--no-figures"]
        self.refused(*words, cwd=first_run, most=10_000, what="scores.npz")
        assert contents(first_run) == before

    def test_report(self, first_run):
        (first_run / "report.html").write_text("old")
        before = contents(first_run)
        self.refused("report", first_run, cwd=first_run, most=10_000, what="report.html")
        assert contents(first_run) == before

    def test_export(self, first_run):
        before = contents(first_run)
        self.refused("export", first_run, cwd=first_run, most=2_000, what="model.onnx")
        assert contents(first_run) == before

    def test_predictions(self, first_run):
        (first_run / "p.csv").write_text("old")
        before = contents(first_run)
        self.refused(
            "predict", first_run, "digits", "--out", "p.csv", cwd=first_run, most=5_000, what="p.csv"
        )
        assert contents(first_run) == before

    def test_budgets(self, tmp_path):
        draw = np.random.default_rng(0)
        np.savez(tmp_path / "f.npz", features=draw.random((240, 4)), labels=np.arange(240) % 12)
        (tmp_path / "budget.json").write_text("old")
        before = contents(tmp_path)
        self.refused("budget", "f.npz", "--sets", "600", cwd=tmp_path, most=15_000, what="budget.json")
        assert contents(tmp_path) == before

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
    def test_an_output_that_takes_nothing(self, first_run):
        with TemporaryDirectory() as place:
            Path(place, "out").symlink_to("/dev/full")
            process = started("predict", first_run, "digits", cwd=first_run, place=place)
            process.join()
            said = Path(place, "err").read_text()
        assert process.exitcode == 2, said
        assert "file system error: No space left on device" in said
        assert "Traceback" not in said


@pytest.fixture
def mounted(tmp_path):
    """Mounts a file system of memory at a place, where that is allowed."""
    places = []

    def mount(name, *options):
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
        if not shutil.which("mount") or os.geteuid() != 0:
            pytest.skip("only root can mount")
        done = subprocess.run(words, capture_output=True, text=True)
        if "permission denied" in done.stderr.lower():  # root of a container
            pytest.skip("this root may not mount")
        assert done.returncode == 0, done.stderr  # a mistake in the test is no reason to skip it
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", str(place)], check=False)


@pytest.mark.slow
class TestMounts:
    def test_a_disk_that_is_full(self, first_run, mounted):
        place = mounted("small", "size=20k")
        for words in (
            ["evaluate", "--no-sweeps", "--no-figures", "--out", place / "e"],
            ["predict", "digits", "--out", place / "p.csv"],
        ):
            done = run(words[0], first_run, *words[1:], cwd=first_run)
            assert done.returncode == 2
            assert "No space left on device" in done.stderr
            assert "Free some space" in done.stderr
            assert not contents(place)

    def test_a_folder_that_is_read_only(self, first_run, mounted):
        place = mounted("sealed", "ro")
        for words in (
            ["evaluate", first_run, "--out", place / "e"],
            ["train", "digits", "--out", place / "r"],
            ["predict", first_run, "digits", "--out", place / "p.csv"],
            ["compare", "digits", "--out", place / "c"],
        ):
            done = run(*words, cwd=first_run)
            assert done.returncode == 2
            assert "Read-only file system" in done.stderr
            assert "choose another location" in done.stderr
