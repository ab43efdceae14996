"""Locks on output folders: one process at a time."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from filelock import FileLock, Timeout

from randomset._core.files import check_writable
from randomset.errors import RandomSetError, WriteError

__all__ = ["lock_folder", "locks_out_folder"]

_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_TIMEOUT = 0.05  # seconds: enough to retry when the previous owner removes the lock file meanwhile

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def locks_out_folder(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate a function to hold the lock of the folder in its argument `out`, if there is one.

    A caller that holds the lock in the same thread shares it. In distributed training only rank 0 takes it.
    """

    @functools.wraps(function)
    def locked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        out: Any = kwargs.get("out")
        rank_zero = all(os.environ.get(name, "0") in ("", "0") for name in _RANKS)
        if out is None or not rank_zero or _lock(folder := Path(out).expanduser()).is_locked:
            return function(*args, **kwargs)
        with lock_folder(folder):
            return function(*args, **kwargs)

    return locked


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or raise if another process holds it; a process that dies releases it.

    The folder is created if needed, and removed if it stays empty. Partial files that a killed process
    left behind are deleted.
    """
    lock = _lock(folder)
    _acquire(lock, folder)
    path = Path(lock.lock_file)
    own = path.stat() if lock.is_locked else None
    try:
        for pattern in (".*.part", "checkpoints/.*.part", "*/checkpoints/.*.part"):
            for partial in folder.glob(pattern):
                partial.unlink(missing_ok=True)
        yield
    finally:
        if lock.is_locked:  # not in a forked child
            with suppress(OSError):
                # While the lock is held: a process that has the file open sees that it is gone, and retries.
                if own is not None and os.path.samestat(own, path.stat()):
                    path.unlink()
            lock.release()
        with suppress(OSError):
            folder.rmdir()  # only if it is empty


def _lock(folder: Path) -> FileLock:
    """Return the lock of a folder, one object per folder; each thread holds it on its own."""
    return FileLock(folder.resolve() / ".lock", is_singleton=True, fallback_to_soft=False)


def _acquire(lock: FileLock, folder: Path) -> None:
    """Acquire a lock, unless the file system does not support locks."""
    path = Path(lock.lock_file)
    while True:
        check_writable(path)
        try:
            if lock.is_locked:  # by this thread, and not to be shared
                raise Timeout(lock.lock_file)
            lock.acquire(timeout=_TIMEOUT, poll_interval=_TIMEOUT / 10)
        except (FileNotFoundError, FileExistsError):
            continue  # another process has just removed the folder
        except Timeout:
            raise RandomSetError(
                "another process is using this folder",
                got=str(folder),
                remedy="Wait until it finishes, or choose another folder",
            ) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise WriteError("cannot write to the folder", folder, error) from None
            path.unlink(missing_ok=True)
        return
