"""Imports of optional packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from randomset.errors import MissingPackageError

__all__ = ["optional_package"]


@contextmanager
def optional_package(package: str, extra: str) -> Iterator[None]:
    """Raise a `MissingPackageError` if an import in this block fails.

    >>> with optional_package("pandas", "frames"):
    ...     import pandas
    """
    try:
        yield
    except ImportError:
        raise MissingPackageError(package, extra) from None
