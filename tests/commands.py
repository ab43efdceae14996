"""Commands as a user runs them: in processes of their own, most of which need not import everything anew."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import traceback
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

import pytest

# A process that has imported these waits, and every command is a fork of it: seconds less for each.
_OURS = ["randomset.cli", "randomset.training.engine", "randomset.evaluation", "randomset.serving.answers"]
_OTHERS = ["sklearn.manifold", "matplotlib.pyplot", "transformers", "tests.commands"]
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([*_OURS, *_OTHERS])


def run(*arguments, cwd, most=None, program="randomset", **extra):
    """What `python -m PROGRAM ARGUMENTS` gives in a folder, with more in the environment.

    No file can be larger than `most` bytes, if that is given: as on a disk that is full.
    """
    with TemporaryDirectory() as place:
        process = started(*arguments, cwd=cwd, place=place, most=most, program=program, **extra)
        process.join()
        assert process.exitcode is not None
        texts = [Path(place, name).read_text(encoding="utf-8") for name in ("out", "err")]
        return CompletedProcess([*map(str, arguments)], process.exitcode, *texts)


def started(*arguments, cwd, place, most=None, program="randomset", **extra):
    """The process of a command that has begun; its outputs go into the files `out` and `err` of a place."""
    outputs = [str(Path(place, name)) for name in ("out", "err")]
    words = [*map(str, arguments)]
    process = _PROCESSES.Process(target=_command, args=(program, words, str(cwd), most, extra, *outputs))
    process.start()
    return process


def start(*arguments, cwd, **extra):
    """As a user starts it: a new Python."""
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1", **extra}
    command = [sys.executable, "-m", "randomset", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)


def run_here(monkeypatch, capsys, *arguments, cwd):
    """The same `main`, in this process: (exit code, error output)."""
    from randomset import cli

    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["randomset", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, capsys.readouterr().err


def threshold_of(folder):
    """What a run takes for known."""
    from randomset.evaluation import Threshold

    threshold = Threshold.load(folder)
    assert threshold is not None
    return threshold


def _command(program, arguments, cwd, most, extra, out, error):
    for number, path in ((1, out), (2, error)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    os.environ.update({"COLUMNS": "100", "OMP_NUM_THREADS": "1", **extra})
    os.chdir(cwd)
    sys.argv = [program, *arguments]
    import torch

    from randomset.cli import app, main
    from reproduction.__main__ import app as reproduction

    torch.set_num_threads(1)
    if most is not None:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    code = 1
    try:
        main({"randomset": app, "reproduction": reproduction}[program])
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
