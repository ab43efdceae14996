"""Folders that results go into: writable, and one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from randomset.errors import FileFormatError, RandomSetError

__all__ = ["alone_in", "check_writable"]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Refuse to work in a folder that another process works in; its end, however, frees it."""
    try:
        import fcntl
    except ImportError:  # on Windows there is no such lock
        yield
        return
    check_writable(folder / ".lock")
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RandomSetError(
                "another process works in this folder",
                got=str(folder),
                remedy="Wait until it ends, or choose another folder",
            ) from None
        try:
            yield
        finally:
            (folder / ".lock").unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()  # if nothing else came into it


def check_writable(path: Path) -> None:
    """Find out before the work whether its result can be kept."""
    if path.is_dir():
        raise FileFormatError(
            "the result would replace a folder", got=str(path), expected="the name of a file"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.parent / f".{path.name}.part"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FileFormatError("the result cannot be written there", got=f"{path}: {error.strerror}") from None
