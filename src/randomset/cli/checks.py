"""Checks of what a user typed, made before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from randomset.errors import FileFormatError, RandomSetError

__all__ = ["check_writable", "number_or_auto"]


def number_or_auto(sets: str) -> Any:
    """Read the value of --sets."""
    if sets == "auto":
        return sets
    try:
        return int(sets)
    except ValueError:
        raise RandomSetError("--sets is neither a number nor auto", got=sets) from None


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
