"""Checks of command-line arguments, made before any work."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from randomset.errors import MissingPackageError, RandomSetError
from randomset.report.axes import need_matplotlib
from randomset.training.balance import checked_class_weight

__all__ = [
    "check_at_least_one",
    "check_drawing",
    "check_seed",
    "class_weights",
    "named_sources",
    "number_or_auto",
    "share_or_number",
]


def check_drawing(figures: bool) -> None:
    """Raise an error if figures are requested but matplotlib is missing."""
    if figures:
        try:
            need_matplotlib()
        except MissingPackageError as error:
            raise RandomSetError(f"{error}, or pass --no-figures") from None


def check_at_least_one(**options: int | None) -> None:
    """Reject numbers below one; None means that the option was not given."""
    for name, value in options.items():
        if value is not None and value < 1:
            option = f"--{name.replace('_', '-')}"
            raise RandomSetError(f"{option} is out of range", got=value, expected="1 or more")


def check_seed(seed: int) -> None:
    """Reject a seed that torch does not accept."""
    if not 0 <= seed < 2**63:
        raise RandomSetError("--seed is out of range", got=seed, expected="a non-negative integer below 2^63")


def class_weights(texts: list[str] | None) -> Any:
    """Parse the values of --class-weight: `balanced`, or NAME=WEIGHT; None if there are none."""
    if not texts or texts == ["balanced"]:
        return "balanced" if texts else None
    weights = []
    for text in texts:
        name, _, weight = text.rpartition("=")  # the name of a class may contain the sign
        try:
            weights.append((name, float(weight)))
        except ValueError:
            name = ""
        if not name:
            raise RandomSetError(
                "--class-weight must be NAME=WEIGHT or balanced", got=text, expected="such as cat=2"
            )
    return checked_class_weight(weights)


def named_sources(texts: list[str]) -> dict[str, str]:
    """Parse the values of --ood, NAME=SOURCE; a source alone is named after itself."""
    sources: dict[str, str] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if not name or (equals and not source):
            raise RandomSetError("--ood must be NAME=SOURCE", got=text, expected="such as kmnist=kmnist")
        name, source = (name, source) if equals else (Path(text).stem, text)
        if name in sources:
            raise RandomSetError("two sources have the same name", got=", ".join(texts))
        sources[name] = source
    return sources


def number_or_auto(sets: str) -> Any:
    """Parse the value of --sets."""
    if sets == "auto":
        return sets
    try:
        return int(sets)
    except ValueError:
        raise RandomSetError("--sets must be a number or auto", got=sets) from None


def share_or_number(value: float | None, default: float, name: str) -> float:
    """Parse a share below 1 or a number of samples; None means the default."""
    if value is None:
        return default
    if not math.isfinite(value) or value < 0 or (value >= 1 and value != int(value)):
        raise RandomSetError(
            f"{name} is out of range", got=value, expected="a share below 1, or a number of samples"
        )
    return int(value) if value >= 1 else value
