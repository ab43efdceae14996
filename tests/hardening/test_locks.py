"""Two processes never work in one folder, however closely the one follows the other."""

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
from randomset._core.locks import alone_in, alone_in_out, check_writable
from randomset.errors import RandomSetError
from tests.commands import run
from tests.hardening.readers import fitted

fcntl = pytest.importorskip("fcntl")
FORK = multiprocessing.get_context("fork")


def test_a_second_one_is_refused(tmp_path):
    with alone_in(tmp_path / "run"):
        with (
            pytest.raises(RandomSetError, match=r"another process works in this folder; got .*run"),
            alone_in(tmp_path / "run"),
        ):
            pass
        assert (tmp_path / "run" / ".lock").exists()  # who was refused leaves it
    assert not (tmp_path / "run").exists()


def test_a_lock_that_was_removed_is_no_lock(tmp_path, monkeypatch):
    """A process opens the file, its owner removes it and ends, and only then the lock is taken."""
    folder, real, turns = tmp_path / "run", fcntl.flock, []

    def late(file, how):
        if not turns:  # the owner ends between the two steps
            (folder / ".lock").unlink()
        turns.append(os.fstat(file.fileno()).st_ino)
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with alone_in(folder):
        monkeypatch.undo()
        assert len(turns) == 2
        assert (folder / ".lock").stat().st_ino == turns[-1]
        with pytest.raises(RandomSetError, match="another process"), alone_in(folder):
            pass


def test_a_folder_that_vanishes_is_made_again(tmp_path, monkeypatch):
    folder, real, turns = tmp_path / "run", Path.open, []

    def late(path, *arguments, **options):
        if path.name == ".lock" and not turns:
            turns.append(path)
            folder.rmdir()
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", late)
    with alone_in(folder):
        assert (folder / ".lock").exists()


def test_the_lock_of_another_is_not_removed(tmp_path):
    with alone_in(tmp_path):
        (tmp_path / ".lock").unlink()  # by hand
        (tmp_path / ".lock").write_text("of another")
    assert (tmp_path / ".lock").read_text() == "of another"


def test_a_file_system_without_locks_is_worked_on(tmp_path, monkeypatch):
    def refuse(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with alone_in(tmp_path / "run"):
        pass


def test_never_two_at_once(tmp_path):
    """Processes that come and go, and note when they are in."""
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
            with alone_in(folder):
                visit += 1
                os.write(note, f"+{os.getpid()}.{visit} ".encode())
                time.sleep(0.001)
                os.write(note, f"-{os.getpid()}.{visit} ".encode())
        except RandomSetError as error:
            if "another process" not in str(error):
                os._exit(1)
    os._exit(0)


def test_a_child_that_is_left_behind_holds_nothing(tmp_path):
    ready, wait = FORK.Event(), FORK.Event()

    def work():
        with alone_in(tmp_path / "run"):
            child = FORK.Process(target=wait.wait, args=(20,))
            child.start()
            ready.set()
            time.sleep(20)

    owner = FORK.Process(target=work)
    owner.start()
    assert ready.wait(20)
    with pytest.raises(RandomSetError, match="another process"), alone_in(tmp_path / "run"):
        pass
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    with alone_in(tmp_path / "run"):
        pass
    wait.set()


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    left = [tmp_path / ".model.safetensors.ab12.part", tmp_path / "checkpoints" / ".last.ckpt.part"]
    for path in (*left, tmp_path / "metrics.csv"):
        path.write_text("half")
    with alone_in(tmp_path):
        pass
    assert not any(path.exists() for path in left)
    assert (tmp_path / "metrics.csv").exists()


def test_a_place_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RandomSetError, match="cannot be written there"):
        check_writable(tmp_path / "file" / "below" / "x")
    if Path("/proc/self").exists():
        with pytest.raises(RandomSetError, match="cannot be written there"):
            check_writable(Path("/proc/self/below/x"))


class TestFit:
    """`fit` takes the lock that commands take."""

    def test_alone(self, tmp_path):
        """In a thread, since whoever holds the lock in this one may call it."""
        with alone_in(tmp_path), ThreadPoolExecutor() as other:
            with pytest.raises(RandomSetError, match="another process works in this folder"):
                other.submit(fitted, tmp_path).result()
            assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        assert fitted(tmp_path)
        assert not (tmp_path / ".lock").exists()

    def test_another_process_is_refused_meanwhile(self, tmp_path):
        seen = []

        class Watching(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, place):
                if place == 0:
                    visitor = FORK.Process(target=_visit, args=(tmp_path,))
                    visitor.start()
                    visitor.join()
                    seen.append(visitor.exitcode)
                return torch.ones(4), place % 3

        network = rs.RandomSetNetwork(rs.backbones.mlp(4, (3,)), rs.Budget.singletons(3))
        rs.fit(network, Watching(), epochs=1, out=tmp_path, workers=0, progress=False, logger=False)
        assert seen == [7]
        with alone_in(tmp_path):
            pass

    def test_with_who_is_alone_already(self, tmp_path, monkeypatch):
        """As commands are; by another name for the same folder, too."""
        monkeypatch.chdir(tmp_path)
        with alone_in(tmp_path / "run"):
            assert fitted("run")
            with pytest.raises(RandomSetError, match="another process"), alone_in(tmp_path / "run"):
                pass  # it has not let go of what was not its own

    def test_the_other_processes_of_a_training(self, tmp_path, monkeypatch):
        """The first one, which started them or was started with them, has the lock."""
        with alone_in(tmp_path), ThreadPoolExecutor() as other:
            for name in ("RANK", "LOCAL_RANK", "NODE_RANK"):
                with monkeypatch.context() as patch:
                    patch.setenv(name, "1")
                    assert other.submit(_folder_of_out, out=tmp_path).result() == tmp_path
            monkeypatch.setenv("RANK", "0")
            with pytest.raises(RandomSetError, match="another process"):
                other.submit(_folder_of_out, out=tmp_path).result()

    def test_a_failure_lets_go(self, tmp_path):
        with pytest.raises(RandomSetError, match="no such option"):
            rs.fit(torch.nn.Linear(2, 2), None, loss=torch.nn.MSELoss(), out=tmp_path / "run", speed=3)
        assert not (tmp_path / "run").exists()


@alone_in_out
def _folder_of_out(*, out):
    return out


def _visit(folder):
    try:
        with alone_in(folder):
            os._exit(0)
    except RandomSetError:
        os._exit(7)


@pytest.mark.slow
def test_every_command_that_writes(first_run, tmp_path):
    """Each is refused while another process has its folder, and leaves the folder as it was."""
    out = tmp_path / "out"
    for folder, words in (
        (first_run, ["evaluate", first_run]),
        (first_run, ["report", first_run]),
        (first_run, ["export", first_run]),
        (out, ["evaluate", first_run, "--out", out]),
        (out, ["train", "digits", "--out", out]),
        (out, ["compare", "digits", "--out", out, "--methods", "softmax", "--seeds", "1"]),
        (out / "tiny", ["paper", "run", "table-1", "--scale", "tiny", "--folder", out]),
        (out, ["demo", "--out", out]),
    ):
        with alone_in(folder):
            before = sorted(path for path in folder.rglob("*") if path.is_file())
            done = run(*words, cwd=tmp_path)
            assert done.returncode == 2, done
            assert "another process works in this folder" in done.stderr
            assert sorted(path for path in folder.rglob("*") if path.is_file()) == before
    assert json.loads((first_run / "test.json").read_text())["format"] == "randomset.test"
