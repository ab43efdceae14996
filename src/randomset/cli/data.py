"""`randomset data`: list the named data sets, and download them."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from randomset.data.catalogue import data_folder, listing
from randomset.data.downloads import download as fetch

__all__ = ["data"]


def data(
    download: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="download a data set into the folder; repeatable")
    ] = None,
) -> None:
    """List the named data sets, and which parts of each are present.

    They are read from the folder in RANDOMSET_DATA. With --download, fetch missing files.
    """
    if download:
        for name in download:
            for path in fetch(name):
                typer.echo(f"Wrote {path}.")
        typer.echo(f"Next: randomset train {download[0]} --out run")
        return
    rows = listing()
    width = max(len(name) for name, _, _ in rows)
    longest = max(len(title) for _, title, _ in rows)
    for name, title, present in rows:
        typer.echo(f"{name:<{width}}  {title:<{longest}}  {present}")
    origin = "from RANDOMSET_DATA" if os.environ.get("RANDOMSET_DATA") else "set RANDOMSET_DATA to change it"
    typer.echo(f"\nFolder: {data_folder()} ({origin}).")
    typer.echo("Data sets are read from the original idx files (MNIST/raw/…), <name>-<split>.npz, a folder")
    typer.echo("<name>/<split> with one folder of images per class or, for texts, a .csv file.")
    typer.echo("To download one: randomset data --download mnist")
    typer.echo("Next: randomset train digits --out run")
