"""What goes wrong, said so that the reader can mend it."""

from __future__ import annotations

import errno

__all__ = [
    "BudgetError",
    "FileFormatError",
    "InvalidBeliefError",
    "LabelError",
    "MissingPackageError",
    "RandomSetError",
    "RandomSetWarning",
    "ShapeError",
    "WriteError",
]


def in_sample(where: tuple[int, ...]) -> str:
    """Name the place of a sample in its batch, or nothing if it is the only one."""
    return f" in sample {', '.join(map(str, where))}" if where else ""


class RandomSetError(ValueError):
    """Base of every error that this library raises on purpose.

    A message has up to four parts: what is wrong, what came, what was expected, and the remedy.

    >>> raise RandomSetError("the level is out of range", got=1.5, expected="a number in [0, 1]")
    Traceback (most recent call last):
        ...
    randomset.errors.RandomSetError: the level is out of range; got 1.5; expected a number in [0, 1]
    """

    def __init__(self, wrong: str, *, got: object = None, expected: str = "", remedy: str = "") -> None:
        message = wrong
        if got is not None:
            message += f"; got {got if isinstance(got, str) else repr(got)}"
        if expected:
            message += f"; expected {expected}"
        if remedy:
            message += f". {remedy}"
        super().__init__(message)
        self.got = got


class BudgetError(RandomSetError):
    """A family of sets that cannot be a budget, or a budget that does not fit its use."""


class ShapeError(RandomSetError):
    """A tensor whose shape or type does not fit the budget or its partner."""


class InvalidBeliefError(RandomSetError):
    """Masses, beliefs or probabilities whose values cannot be what they claim to be."""

    sample: int | None = None
    """The place in its batch of the sample that is wrong, where one is."""


class LabelError(RandomSetError):
    """A label that names no class, or a class that does not exist."""


class FileFormatError(RandomSetError):
    """A file or text that is not what it should be."""


class WriteError(RandomSetError, OSError):
    """A file or folder that cannot be written: a disk that is full, a place that is read-only.

    >>> full = OSError(errno.ENOSPC, "No space left on device")
    >>> raise WriteError("the file cannot be written", "run/metrics.csv", full)
    Traceback (most recent call last):
        ...
    randomset.errors.WriteError: the file cannot be written; got run/metrics.csv (No space left on device).
    Make room, or choose another place; a file that was there before is as it was
    """

    def __init__(self, wrong: str, path: object, error: OSError) -> None:
        self._parts = (wrong, path, error)
        super().__init__(
            wrong,
            got=f"{path} ({error.strerror or error or type(error).__name__})",
            remedy=f"{remedy_of(error)}; a file that was there before is as it was",
        )

    def __reduce__(self) -> tuple[type, tuple[str, object, OSError]]:
        return type(self), self._parts


def remedy_of(error: OSError) -> str:
    """Say what to do where a disk refuses."""
    return _REMEDIES.get(errno.errorcode.get(error.errno or 0, ""), "Choose another place")


_REMEDIES = {
    "ENOSPC": "Make room, or choose another place",
    "EDQUOT": "Make room, or choose another place",
    "EFBIG": "Allow larger files (ulimit -f), or choose another place",
    "EROFS": "The file system is read-only: choose another place",
    "EACCES": "Get the right to write there, or choose another place",
}


class MissingPackageError(RandomSetError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        self._parts = (package, extra)
        super().__init__(
            f"the package {package!r} is not installed",
            remedy=f"Install it with: pip install 'randomset[{extra}]'",
        )

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), self._parts


class RandomSetWarning(UserWarning):
    """Something was handled in a way that the user should know of."""
