"""Atomic writes, files with a format and version, and locks: one process at a time in an output folder.

Tensors are stored as safetensors, everything else as JSON; never as pickle.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from filelock import FileLock, Timeout
from torch import Tensor

from randomset.errors import FileFormatError, RandomSetError, WriteError

__all__ = [
    "check_version",
    "check_writable",
    "expanded",
    "lock_folder",
    "locks_out_folder",
    "put_in_place",
    "read_document",
    "replacing",
    "save_tensors",
    "write_document",
    "write_text",
]

_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_ATTEMPTS = 20


def expanded(path: str | os.PathLike[str]) -> Path:
    """Expand `~` to the home folder; unlike `Path.expanduser`, keep the path of an unknown user."""
    return Path(os.path.expanduser(path))


def check_writable(path: Path) -> None:
    """Raise before a long computation if its result could not be written to `path`; create its folder."""
    if path.is_dir():
        raise FileFormatError("the output path is a folder", got=str(path), expected="the name of a file")
    probe = path.parent / f".{path.name}.{os.getpid()}.part"
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink(missing_ok=True)
            return
        except OSError as error:  # another process may just have removed the folder
            if not attempts_left or not isinstance(error, (FileNotFoundError, FileExistsError)):
                raise WriteError("cannot write the output", path, error) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the block ends, and is deleted if it raises."""
    path = expanded(path)
    if not path.parent.is_dir() or path.is_dir():
        raise RandomSetError(
            "the output path is a folder" if path.is_dir() else "the folder does not exist",
            got=str(path if path.is_dir() else path.parent),
            remedy="Pass the path of a file in an existing folder",
        )
    try:
        handle, temporary = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
    except OSError as error:
        raise WriteError("cannot write to the folder", path.parent, error) from error
    os.close(handle)
    try:
        yield Path(temporary)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp makes it readable by its owner only
        put_in_place(temporary, path)
    except RandomSetError:
        raise
    except OSError as error:
        raise WriteError("the file cannot be written", path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def put_in_place(temporary: str | os.PathLike[str], path: Path) -> None:
    """Replace a file such that a power failure leaves either the old or the new one, complete.

    Contents are synced before the rename, and the folder afterwards, where the file system supports it.
    """
    with open(temporary, "rb+") as file:
        try:
            os.fsync(file.fileno())
        except OSError as error:  # a full disk may be reported only here
            if error.errno not in _NO_SYNC:
                raise
    os.replace(temporary, path)
    with suppress(OSError):  # some systems cannot open folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def save_tensors(tensors: Mapping[str, Tensor], path: Path, header: dict[str, str] | None = None) -> None:
    """Write named tensors as safetensors, with strings in the header."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # Cloned, because safetensors refuses tensors that share memory.
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(stored, temporary, metadata=header)
        except SafetensorError as error:  # it wraps the system's errors
            raise OSError(str(error).rpartition("I/O error: ")[2]) from error


def write_text(text: str, path: Path) -> None:
    """Write a UTF-8 text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_document(content: Mapping[str, Any], path: Path, form: str, version: int, **options: Any) -> None:
    """Write JSON that starts with its format and version; `options` are passed to `json.dumps`."""
    text = json.dumps({"format": form, "version": version, **content}, ensure_ascii=False, **options)
    write_text(text + "\n", path)


def read_document(path: Path, form: str, version: int, what: str) -> dict[str, Any]:
    """Read JSON written by `write_document`, and check its format and version.

    `what` names the content in errors, such as "the threshold".
    """
    try:
        content = json.loads(expanded(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileFormatError(f"{what} cannot be read", got=f"{path}: {reason}") from None
    actual = content.get("format") if isinstance(content, dict) else type(content).__name__
    if actual != form:
        raise FileFormatError(
            f"{what} cannot be read", got=f"{path} with format {_short(actual)}", expected=f"format {form!r}"
        )
    check_version(content.get("version"), version, what, path)
    return content


def check_version(version: object, supported: int | str, what: str, path: object = "") -> None:
    """Raise if the version of a file is not the supported one."""
    if version == supported and not isinstance(version, bool):
        return
    try:
        newer = float(version) > float(supported)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        newer = False
    raise FileFormatError(
        f"{what} was written by {'a newer' if newer else 'another'} version of randomset",
        got=f"{f'{path}: ' if path else ''}version {_short(version)}",
        expected=f"version {supported!r}",
        remedy="Update randomset: pip install --upgrade randomset" if newer else "Create it again",
    )


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with thousands of digits, deeply nested lists
        return type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}…"


# -- locks on output folders -----------------------------------------------------------------------


_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_TIMEOUT = 0.05  # seconds: enough to retry when the previous owner removes the lock file meanwhile

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def locks_out_folder(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate a function to hold the lock of the folder in its keyword argument `out`, if given.

    The lock is shared with a caller in the same thread. In distributed training, only rank 0 takes it.
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
                # While the lock is held, so that a process that has the file open sees this and retries.
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
            if lock.is_locked:  # by this thread, which does not share it here
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
