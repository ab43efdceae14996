"""Two processes never write to one folder, however closely they follow each other."""

import errno
import json
import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import randomset as rs
from randomset._core.files import lock_folder, locks_out_folder
from randomset.errors import RandomSetError, WriteError
from tests.commands import run
from tests.hardening.readers import fitted

fcntl = pytest.importorskip("fcntl")
FORK = multiprocessing.get_context("fork")


def test_second_lock_is_refused(tmp_path):
    with lock_folder(tmp_path / "run"):
        with (
            pytest.raises(RandomSetError, match=r"another process is using this folder; got .*run"),
            lock_folder(tmp_path / "run"),
        ):
            pass
        assert (tmp_path / "run" / ".lock").exists()  # a refused process leaves it
    assert not (tmp_path / "run").exists()


def test_removed_lock_file_is_not_a_lock(tmp_path, monkeypatch):
    """A process opens the file, its owner removes it and exits, and only then the lock is taken."""
    folder, real, turns = tmp_path / "run", fcntl.flock, []

    def late(file, how):
        if not turns:  # the owner exits between the two steps
            (folder / ".lock").unlink()
        turns.append(os.fstat(file).st_ino)
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with lock_folder(folder):
        monkeypatch.undo()
        assert len(turns) == 2
        assert (folder / ".lock").stat().st_ino == turns[-1]
        with pytest.raises(RandomSetError, match="another process"), lock_folder(folder):
            pass


def test_vanished_folder_is_created_again(tmp_path, monkeypatch):
    folder, real, turns = tmp_path / "run", os.open, []

    def late(path, *arguments, **options):
        if Path(path).name == ".lock" and not turns:
            turns.append(path)
            folder.rmdir()
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", late)
    with lock_folder(folder):
        assert turns
        assert (folder / ".lock").exists()


def test_foreign_lock_file_is_not_removed(tmp_path):
    with lock_folder(tmp_path):
        (tmp_path / ".lock").unlink()  # by hand
        (tmp_path / ".lock").write_text("foreign")
    assert (tmp_path / ".lock").read_text() == "foreign"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
def test_file_system_without_locks(tmp_path, monkeypatch, code):
    def refuse(file, how):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock_folder(tmp_path / "run"):
        assert (tmp_path / "run").exists()
    assert not (tmp_path / "run").exists()


def test_lock_file_without_permission(tmp_path, monkeypatch):
    real = os.open

    def refuse(path, *arguments, **options):
        if Path(path).name == ".lock":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(WriteError, match=r"cannot write to the folder.*Permission"),
        lock_folder(tmp_path),
    ):
        pass


def test_forked_child_leaves_the_lock_to_its_parent(tmp_path):
    try:
        with lock_folder(tmp_path):
            if not (child := os.fork()):
                raise SystemExit  # leaves the block, in the child
            os.waitpid(child, 0)
            assert (tmp_path / ".lock").exists()
            assert _refused(tmp_path)
    except SystemExit:
        os._exit(0)


def _refused(folder):
    visitor = FORK.Process(target=_visit, args=(folder,))
    visitor.start()
    visitor.join()
    return visitor.exitcode == 7


@pytest.mark.slow
def test_never_two_processes_at_once(tmp_path):
    """Processes that come and go, and log when they hold the lock."""
    diary = tmp_path / "diary"
    workers = [FORK.Process(target=_come_and_go, args=(tmp_path / "run", diary)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    notes = diary.read_text().split()
    assert len(notes) > 20
    for come, go in zip(notes[::2], notes[1::2], strict=True):
        assert come == f"+{go[1:]}"
        assert go == f"-{come[1:]}"


def _come_and_go(folder, diary):
    until, note = time.monotonic() + 1.0, os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    visit = 0
    while time.monotonic() < until or visit < 5:
        try:
            with lock_folder(folder):
                visit += 1
                os.write(note, f"+{os.getpid()}.{visit} ".encode())
                time.sleep(0.001)
                os.write(note, f"-{os.getpid()}.{visit} ".encode())
        except RandomSetError as error:
            if "another process" not in str(error):
                os._exit(1)
    os._exit(0)


def test_orphaned_child_holds_no_lock(tmp_path):
    ready, wait = FORK.Event(), FORK.Event()

    def work():
        with lock_folder(tmp_path / "run"):
            child = FORK.Process(target=wait.wait, args=(20,))
            child.start()
            ready.set()
            time.sleep(20)

    owner = FORK.Process(target=work)
    owner.start()
    assert ready.wait(20)
    with pytest.raises(RandomSetError, match="another process"), lock_folder(tmp_path / "run"):
        pass
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    with lock_folder(tmp_path / "run"):
        pass
    wait.set()


def test_partial_files_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    left = [tmp_path / ".model.safetensors.ab12.part", tmp_path / "checkpoints" / ".last.ckpt.part"]
    for path in (*left, tmp_path / "metrics.csv"):
        path.write_text("half")
    with lock_folder(tmp_path):
        pass
    assert not any(path.exists() for path in left)
    assert (tmp_path / "metrics.csv").exists()


class TestFit:
    """`fit` takes the same lock as the commands."""

    def test_fit_takes_the_lock(self, tmp_path):
        """Called from another thread, because the thread that holds the lock may share it."""
        with lock_folder(tmp_path), ThreadPoolExecutor() as other:
            with pytest.raises(RandomSetError, match="another process is using this folder"):
                other.submit(fitted, tmp_path).result()
            assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        assert fitted(tmp_path)
        assert not (tmp_path / ".lock").exists()

    def test_other_processes_are_refused_meanwhile(self, tmp_path):
        seen = []

        class Watching(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, place):
                if place == 0:
                    seen.append(_refused(tmp_path))
                return torch.ones(4), place % 3

        network = rs.RandomSetNetwork(rs.backbones.mlp(4, (3,)), rs.Budget.singletons(3))
        rs.fit(network, Watching(), epochs=1, out=tmp_path, workers=0, progress=False, logger=False)
        assert seen == [True]
        with lock_folder(tmp_path):
            pass

    def test_shares_the_lock_of_its_caller(self, tmp_path, monkeypatch):
        """As commands do, also through another path to the same folder."""
        monkeypatch.chdir(tmp_path)
        with lock_folder(tmp_path / "run"):
            assert fitted("run")
            with pytest.raises(RandomSetError, match="another process"), lock_folder(tmp_path / "run"):
                pass  # fit has not released what it did not acquire

    def test_other_ranks_take_no_lock(self, tmp_path, monkeypatch):
        """Rank 0 holds it for all."""
        with lock_folder(tmp_path), ThreadPoolExecutor() as other:
            for name in ("RANK", "LOCAL_RANK", "NODE_RANK"):
                with monkeypatch.context() as patch:
                    patch.setenv(name, "1")
                    assert other.submit(_folder_of_out, out=tmp_path).result() == tmp_path
            monkeypatch.setenv("RANK", "0")
            with pytest.raises(RandomSetError, match="another process"):
                other.submit(_folder_of_out, out=tmp_path).result()

    def test_failure_releases_the_lock(self, tmp_path):
        with pytest.raises(RandomSetError, match="unknown option for fit"):
            rs.fit(torch.nn.Linear(2, 2), None, loss=torch.nn.MSELoss(), out=tmp_path / "run", speed=3)
        assert not (tmp_path / "run").exists()


@locks_out_folder
def _folder_of_out(*, out):
    return out


def _visit(folder):
    try:
        with lock_folder(folder):
            os._exit(0)
    except RandomSetError:
        os._exit(7)


@pytest.mark.slow
def test_every_writing_command_takes_the_lock(first_run, tmp_path):
    """Each is refused while another process holds its folder, and leaves the folder unchanged."""
    out = tmp_path / "out"
    for folder, words in (
        (first_run, ["evaluate", first_run]),
        (first_run, ["report", first_run]),
        (first_run, ["export", first_run]),
        (out, ["evaluate", first_run, "--out", out]),
        (out, ["train", "digits", "--out", out]),
        (out, ["compare", "digits", "--out", out, "--methods", "softmax", "--seeds", "1"]),
        (out / "tiny", ["run", "table-1", "--scale", "tiny", "--folder", out]),
        (out, ["demo", "--out", out]),
    ):
        with lock_folder(folder):
            before = sorted(path for path in folder.rglob("*") if path.is_file())
            program = "reproduction" if words[0] == "run" else "randomset"
            done = run(*words, cwd=tmp_path, program=program)
            assert done.returncode == 2, done
            assert "another process is using this folder" in done.stderr
            assert sorted(path for path in folder.rglob("*") if path.is_file()) == before
    assert json.loads((first_run / "test.json").read_text())["format"] == "randomset.test"
