"""What the figures share: a place to draw, colours, and short names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from randomset.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "DARK",
    "MOST_CLASSES",
    "ORANGE",
    "drawing_on",
    "name_classes",
    "need_matplotlib",
    "panels",
    "plain",
    "shortened",
    "wide_enough",
]

BLUE, DARK, ORANGE = "#9ecae1", "#08519c", "#d95f0e"
"""What is filled, what is drawn in lines, and what is to be noticed."""

MOST_CLASSES = 40  # more names cannot be read


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
    """Cut text that is too long for its place, in the middle: names often differ at their ends.

    >>> shortened("a rather long class name 17", 12)
    'a rath…me 17'
    """
    head = length // 2
    return text if len(text) <= length else f"{text[:head]}…{text[head + 1 - length :]}"


def plain(name: str, length: int = 28) -> str:
    """Shorten a name, and keep matplotlib from reading dollars in it as a formula."""
    return shortened(name, length).replace("$", r"\$")


def name_classes(ax: Axes, names: Sequence[str]) -> None:
    """Write names of classes along the horizontal axis, upright where they would touch."""
    short = [plain(name, 20) for name in names]
    upright = len(short) * max(map(len, short)) > 60
    ax.set_xticks(range(len(short)), short, rotation=90 if upright else 0)
    ax.set_xlim(-0.7, len(short) - 0.3)


def wide_enough(classes: int, height: float) -> tuple[float, float]:
    """Return the size of a figure of so many classes, whose names stand upright where there are many."""
    return max(7.5, 0.28 * classes), height + (1.5 if classes > 10 else 0)


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, list[Axes]]:
    """Make a figure of several axes."""
    need_matplotlib()
    from matplotlib.figure import Figure as Drawing

    figure = Drawing(figsize=size, layout="constrained")  # not pyplot's: nothing is left open
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel().tolist()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes
