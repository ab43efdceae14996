"""`randomset data`: which data sets are known by name, and which are here."""

from __future__ import annotations

import typer

__all__ = ["data"]


def data() -> None:
    """List the data sets that are known by name, what is present of each, and where it was looked for."""
    from randomset.data.catalogue import data_folder, listing

    folder = data_folder()
    rows = listing()
    width = max(len(name) for name, _, _ in rows)
    longest = max(len(title) for _, title, _ in rows)
    for name, title, present in rows:
        typer.echo(f"{name:<{width}}  {title:<{longest}}  {present}")
    typer.echo("")
    if folder is None:
        typer.echo("RANDOMSET_DATA names no folder: only digits can be loaded by name.")
    else:
        typer.echo(f"Looked in {folder}, the folder that RANDOMSET_DATA names.")
    typer.echo("idx files go into <NAME>/raw/ as they are published, the others are <name>-<split>.npz.")
    typer.echo("Next: randomset train digits --out run")
