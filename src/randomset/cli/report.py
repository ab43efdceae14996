"""`randomset report`: the evaluation of a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from randomset.runs import Run

__all__ = ["report"]


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="an evaluated run folder")],
    out: Annotated[
        Path | None, typer.Option(help="a folder for report.html; default: the run folder")
    ] = None,
) -> None:
    """Write report.html: metrics, curves, a threshold slider, samples and class ellipsoids. Works offline.

    The samples are taken from the data that were evaluated, if they are still available.
    """
    typer.echo(f"Wrote {Run(run).report(out)}.")
