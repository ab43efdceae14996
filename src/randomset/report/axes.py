"""What the figures share: a place to draw, and short names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from randomset.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["drawing_on", "need_matplotlib", "shortened"]


def need_matplotlib() -> None:
    """Fail with the name of the extra if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingPackageError("matplotlib", "plot") from None


def drawing_on(ax: Axes | None, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Return given axes with their figure, or new ones of a size."""
    need_matplotlib()
    if ax is not None:
        return ax.figure.figure, ax  # the whole figure, not a part of it
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=size, layout="constrained")  # not pyplot's: nothing is left open
    return figure, figure.subplots()


def shortened(text: str, length: int = 28) -> str:
    """Cut text that is too long for its place."""
    return text if len(text) <= length else text[: length - 1] + "…"
