"""What commands print while they work: the log of the library, as plain lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from randomset._core.progress import on_terminal

__all__ = ["printed", "quiet"]

_EPOCHS = "randomset.training.epochs"


class _Printer(logging.Handler):
    """Print stages to the output; warnings, and epochs unless bars show them, to the error stream."""

    def emit(self, record: logging.LogRecord) -> None:
        epoch = record.name == _EPOCHS
        if not (epoch and on_terminal()):
            typer.echo(record.getMessage(), err=epoch or record.levelno >= logging.WARNING)


@contextmanager
def printed() -> Iterator[None]:
    """Print what the library logs within a block."""
    logger, handler = logging.getLogger("randomset"), _Printer(logging.INFO)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


@contextmanager
def quiet() -> Iterator[None]:
    """Print warnings alone within a block."""
    logger = logging.getLogger("randomset")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
