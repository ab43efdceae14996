"""Commands as a user runs them, in processes of their own: forks of one that has imported everything."""

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

# A server process imports these once, and every command is a fork of it: this saves seconds each time.
_OURS = ["randomset.cli", "randomset.training.engine", "randomset.evaluation", "randomset.serving.answers"]
_OTHERS = ["sklearn.manifold", "matplotlib.pyplot", "transformers", "tests.commands"]
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([*_OURS, *_OTHERS])


def run(*arguments, cwd, most=None, program="randomset", **extra):
    """Run `python -m PROGRAM ARGUMENTS` in a folder; `extra` are environment variables.

    `most` limits the size of files in bytes, as on a full disk.
    """
    with TemporaryDirectory() as place:
        process = started(*arguments, cwd=cwd, place=place, most=most, program=program, **extra)
        process.join()
        assert process.exitcode is not None
        texts = [Path(place, name).read_text(encoding="utf-8") for name in ("out", "err")]
        return CompletedProcess([*map(str, arguments)], process.exitcode, *texts)


def started(*arguments, cwd, place, most=None, program="randomset", **extra):
    """Start a command and return its process; its output goes into the files `out` and `err` of a folder."""
    outputs = [str(Path(place, name)) for name in ("out", "err")]
    words = [*map(str, arguments)]
    process = _PROCESSES.Process(target=_command, args=(program, words, str(cwd), most, extra, *outputs))
    process.start()
    return process


def start(*arguments, cwd, **extra):
    """Run a command in a new Python process, as a user does."""
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1", **extra}
    command = [sys.executable, "-m", "randomset", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)


def run_here(monkeypatch, capsys, *arguments, cwd):
    """Run a command that fails in this process; return (exit code, error output)."""
    from randomset import cli

    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["randomset", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, capsys.readouterr().err


def threshold_of(folder):
    """Return the threshold of a run."""
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
