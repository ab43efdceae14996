"""Printing of the library's log messages while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from randomset._core.progress import on_terminal

__all__ = ["printed", "quiet"]

_EPOCHS = "randomset.training.epochs"


class _Printer(logging.Handler):
    """Print stages to stdout; warnings, and epochs unless a progress bar shows them, to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        epoch = record.name == _EPOCHS
        if not (epoch and on_terminal()):
            typer.echo(record.getMessage(), err=epoch or record.levelno >= logging.WARNING)


@contextmanager
def printed() -> Iterator[None]:
    """Print the library's log messages within a block."""
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
    """Print only warnings within a block."""
    logger = logging.getLogger("randomset")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
