"""`randomset data`: which data sets are known by name, which are here, and how to get the others."""

from __future__ import annotations

import os
from typing import Annotated

import typer

__all__ = ["data"]


def data(
    download: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="fetch a data set into the folder; repeatable")
    ] = None,
) -> None:
    """List the data sets that are known by name, what is present of each, and where it was looked for.

    The folder is the one that RANDOMSET_DATA names. With --download, fetch what is missing of a set.
    """
    from randomset.data.catalogue import data_folder, listing
    from randomset.data.downloads import download as fetch

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
    named = "the folder that RANDOMSET_DATA names" if os.environ.get("RANDOMSET_DATA") else ""
    typer.echo(f"\nLooked in {data_folder()}, {named or 'unless RANDOMSET_DATA names another folder'}.")
    typer.echo(
        "A set is found there as the idx files of its authors (MNIST/raw/…), as <name>-<split>.npz, as a"
    )
    typer.echo(
        "folder <name>/<split> with a folder of images for each class, or, of texts, as its .csv file."
    )
    typer.echo("To fetch one: randomset data --download mnist")
    typer.echo("Next: randomset train digits --out run")
