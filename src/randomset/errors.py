"""Exceptions and warnings that state the problem and, where there is one, the remedy."""

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


def in_sample(index: tuple[int, ...]) -> str:
    """Return " in sample 3" for an index into a batch, or "" for a single sample."""
    return f" in sample {', '.join(map(str, index))}" if index else ""


def first_line(error: BaseException | None) -> str:
    """Return the first line of an error's message, or its type where the message is empty."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


class RandomSetError(ValueError):
    """Base class of the errors that this library raises.

    A message has up to four parts: the problem, the value given, what was expected, and the remedy.

    >>> raise RandomSetError("the level is out of range", got=1.5, expected="a number in [0, 1]")
    Traceback (most recent call last):
        ...
    randomset.errors.RandomSetError: the level is out of range; got 1.5; expected a number in [0, 1]
    """

    def __init__(self, message: str, *, got: object = None, expected: str = "", remedy: str = "") -> None:
        if got is not None:
            message += f"; got {got if isinstance(got, str) else repr(got)}"
        if expected:
            message += f"; expected {expected}"
        if remedy:
            message += f". {remedy}"
        super().__init__(message)
        self.got = got


class BudgetError(RandomSetError):
    """Sets that do not form a valid budget, or a budget that does not match its use."""


class ShapeError(RandomSetError):
    """A tensor whose shape or dtype does not match the budget or another tensor."""


class InvalidBeliefError(RandomSetError):
    """Values that are not valid masses, beliefs or probabilities."""

    sample: int | None = None
    """Index of the invalid sample in its batch, if known."""


class LabelError(RandomSetError):
    """A label that does not match any class."""


class FileFormatError(RandomSetError):
    """A file or text that is not in the expected format."""


class WriteError(RandomSetError, OSError):
    """A file or folder that cannot be written, for example on a full disk or a read-only file system.

    >>> full = OSError(errno.ENOSPC, "No space left on device")
    >>> raise WriteError("the file cannot be written", "run/metrics.csv", full)
    Traceback (most recent call last):
        ...
    randomset.errors.WriteError: the file cannot be written; got run/metrics.csv (No space left on device).
    Free some space, or choose another location; existing files are unchanged
    """

    def __init__(self, message: str, path: object, error: OSError) -> None:
        self._parts = (message, path, error)
        super().__init__(
            message,
            got=f"{path} ({error.strerror or error or type(error).__name__})",
            remedy=f"{remedy_for(error)}; existing files are unchanged",
        )

    def __reduce__(self) -> tuple[type, tuple[str, object, OSError]]:
        return type(self), self._parts


def remedy_for(error: OSError) -> str:
    """Return advice for a failed write."""
    return _REMEDIES.get(errno.errorcode.get(error.errno or 0, ""), "Choose another location")


_REMEDIES = {
    "ENOSPC": "Free some space, or choose another location",
    "EDQUOT": "Free some space, or choose another location",
    "EFBIG": "Allow larger files (ulimit -f), or choose another location",
    "EROFS": "The file system is read-only: choose another location",
    "EACCES": "Get write permission, or choose another location",
}


class MissingPackageError(RandomSetError, ImportError):
    """A missing optional package; the message names the extra that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        self._parts = (package, extra)
        super().__init__(
            f"the package {package!r} is not installed",
            remedy=f"Install it with: pip install 'randomset[{extra}]'",
        )

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), self._parts


class RandomSetWarning(UserWarning):
    """A warning about how this library handled its inputs."""
