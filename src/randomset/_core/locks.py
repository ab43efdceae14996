"""Folders that results go into: writable, and one process at a time."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from randomset.errors import FileFormatError, RandomSetError, WriteError

__all__ = ["alone_in", "alone_in_out", "check_writable"]

_LOCK, _TRIES = ".lock", 20
_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_held: dict[tuple[Path, int], IO[str]] = {}
"""The locks of this process, by folder and thread."""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def alone_in_out(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a function be alone in the folder that its argument `out` names, if it names one.

    Where whoever calls it, in the same thread, is alone there already, it works beside them; of the processes
    of one training the first one is alone for all.
    """

    @functools.wraps(function)
    def alone(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        out: Any = named.get("out")
        folder = None if out is None else Path(out).expanduser()
        first = all(os.environ.get(name, "0") in ("", "0") for name in _RANKS)
        if folder is None or not first or _key(folder) in _held:
            return function(*given, **named)
        with alone_in(folder):
            return function(*given, **named)

    return alone


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Refuse to work in a folder that another process works in; its end, however it comes, frees the folder.

    Files that a killed process left half-written are removed.
    """
    try:
        import fcntl
    except ImportError:  # on Windows there is no such lock
        yield
        return
    file = _locked(folder, fcntl)
    key = _key(folder)
    _held[key] = file
    try:
        for pattern in (".*.part", "checkpoints/.*.part", "*/checkpoints/.*.part"):
            for left in folder.glob(pattern):
                left.unlink(missing_ok=True)
        yield
    finally:
        # While it is still held: who has opened it already will see that it is gone, and take the next one.
        if _is_at(file, folder / _LOCK):
            (folder / _LOCK).unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()  # if nothing else came into it
        _held.pop(key, None)
        file.close()


def _key(folder: Path) -> tuple[Path, int]:
    return folder.resolve(), threading.get_ident()


def _let_go() -> None:
    """In a child that was forked: it may outlive this process, and holds nothing."""
    for file in _held.values():
        file.close()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _locked(folder: Path, fcntl: Any) -> IO[str]:
    """Return the lock file, open and locked, and still the one that lies in the folder."""
    path = folder / _LOCK
    while True:
        check_writable(path)
        try:
            file = path.open("w", encoding="utf-8")
        except FileNotFoundError:
            continue  # a process that ended removed the folder just now, which could be written to
        except OSError as error:
            raise WriteError("the folder cannot be written to", folder, error) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise RandomSetError(
                "another process works in this folder",
                got=str(folder),
                remedy="Wait until it ends, or choose another folder",
            ) from None
        except OSError:  # a file system without locks
            return file
        if _is_at(file, path):
            return file
        file.close()  # its owner removed it between the two steps above


def _is_at(file: IO[str], path: Path) -> bool:
    """Say whether an open file is the one at a path, and not one that was removed from there."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def check_writable(path: Path) -> None:
    """Find out before the work whether its result can be kept."""
    if path.is_dir():
        raise FileFormatError(
            "the result would replace a folder", got=str(path), expected="the name of a file"
        )
    probe = path.parent / f".{path.name}.{os.getpid()}.part"
    for tries_left in reversed(range(_TRIES)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink(missing_ok=True)
            return
        except OSError as error:  # it may be that a process that ended removed the folder just now
            if not tries_left or not isinstance(error, (FileNotFoundError, FileExistsError)):
                raise WriteError("the result cannot be written there", path, error) from None
