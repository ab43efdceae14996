"""Checks of what a user typed, made before any work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from randomset.errors import FileFormatError, MissingPackageError, RandomSetError

__all__ = [
    "alone_in",
    "as_place",
    "check_drawing",
    "check_seed",
    "check_writable",
    "number_or_auto",
    "share_or_number",
]


def as_place(source: str) -> str:
    """Return the whole path of a source that is a file or folder; a name of the catalogue stays."""
    from randomset.data.catalogue import KNOWN

    named = source in ("", "digits", *KNOWN)
    return source if named or not Path(source).exists() else str(Path(source).resolve())


def check_drawing(figures: bool) -> None:
    """Fail before the work where figures are wanted and cannot be drawn after it."""
    from randomset.report.axes import need_matplotlib

    if figures:
        try:
            need_matplotlib()
        except MissingPackageError as error:
            raise RandomSetError(f"{error}, or give --no-figures") from None


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


def number_or_auto(sets: str) -> Any:
    """Read the value of --sets."""
    if sets == "auto":
        return sets
    try:
        return int(sets)
    except ValueError:
        raise RandomSetError("--sets is neither a number nor auto", got=sets) from None


def share_or_number(value: float | None, usual: float, name: str) -> float:
    """Read a share below 1 or a whole number of samples; None means the usual one."""
    if value is None:
        return usual
    if not math.isfinite(value) or value < 0 or (value >= 1 and value != int(value)):
        raise RandomSetError(
            f"{name} is out of range", got=value, expected="a share below 1, or a number of samples"
        )
    return int(value) if value >= 1 else value


def check_seed(seed: int) -> None:
    """Refuse a seed that torch could not take."""
    if not 0 <= seed < 2**63:
        raise RandomSetError("--seed is out of range", got=seed, expected="a whole number from 0")


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
