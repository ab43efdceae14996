"""Checks of what a user typed, made before any work."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from randomset.errors import MissingPackageError, RandomSetError

__all__ = [
    "as_place",
    "check_drawing",
    "check_seed",
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
