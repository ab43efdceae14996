"""What commands say while they work: stages on the output, epochs beside it unless bars show them."""

from __future__ import annotations

from typing import Any

import typer

__all__ = ["aloud", "aside"]


def aside(text: str) -> None:
    """Say something that is no result."""
    typer.echo(text, err=True)


def aloud() -> dict[str, Any]:
    """Return the options of `train_run` that make it speak."""
    from randomset._core.progress import on_terminal

    return {"say": typer.echo, "say_epoch": None if on_terminal() else aside}
