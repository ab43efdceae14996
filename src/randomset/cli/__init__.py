"""The command line: `randomset COMMAND`."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

import randomset
from randomset._core.batches import on_terminal
from randomset.cli import budget, compare, data, demo, evaluate, export, predict, report, serve, train, wrap
from randomset.errors import RandomSetError, remedy_for

__all__ = ["app", "main", "printed"]

_EPOCHS = "randomset.training.epochs"

app = typer.Typer(
    help="Random-set neural networks: classifiers that know when they do not know.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    demo.demo,
    data.data,
    budget.budget,
    train.train,
    wrap.wrap,
    evaluate.evaluate,
    compare.compare,
    predict.predict,
    report.report,
    export.export,
    serve.serve,
):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(randomset.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


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


def main(commands: typer.Typer = app) -> None:
    """Run the command line; user errors end with a one-line message and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # terminals that cannot show a character print ?
    try:
        try:
            with printed():
                commands()
        finally:
            sys.stdout.flush()  # so that a failure to write is handled below, not at interpreter exit
    except RandomSetError as error:
        _fail(str(error))
    except BrokenPipeError:  # the reader closed the pipe
        _discard_output()
        sys.exit(1)
    except OSError as error:  # a full disk, a file where a folder should be, a name that is too long
        _discard_output()
        place = f"; got {error.filename}" if error.filename else ""
        _fail(f"file system error: {error.strerror or error}{place}. {remedy_for(error)}")
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        sys.exit(130)


def _discard_output() -> None:
    """Redirect unwritable output to the null device, or Python would report an error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> NoReturn:
    typer.echo(f"Error: {message}", err=True)
    sys.exit(2)
