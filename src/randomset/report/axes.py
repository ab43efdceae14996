"""Shared parts of all figures: creation without pyplot, colours, label text, and saving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from colorsys import hls_to_rgb
from pathlib import Path
from typing import TYPE_CHECKING, Any

from randomset._core.files import replacing
from randomset._core.packages import optional_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "DARK",
    "MAX_CLASSES",
    "MAX_POINTS",
    "ORANGE",
    "class_colours",
    "class_figure_size",
    "figure_and_axes",
    "label_classes",
    "label_text",
    "need_matplotlib",
    "panels",
    "save_figures",
    "shortened",
]

BLUE, DARK, ORANGE = "#9ecae1", "#08519c", "#d95f0e"
"""Fill, lines, and emphasis."""

MAX_CLASSES = 40  # more names are unreadable
MAX_POINTS = 5000  # more points only hide one another


def need_matplotlib() -> None:
    """Raise an error that names the extra if matplotlib is not installed."""
    with optional_package("matplotlib", "plot"):
        import matplotlib  # noqa: F401


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, list[Axes]]:
    """Create a figure with a grid of axes."""
    need_matplotlib()
    from matplotlib.figure import Figure as NewFigure  # pyplot would keep the figure open

    figure = NewFigure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel().tolist()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def figure_and_axes(ax: Axes | None, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Return the given axes with their figure, or create both."""
    if ax is None:
        figure, (ax,) = panels(1, 1, size)
        return figure, ax
    ax.spines[["top", "right"]].set_visible(False)
    return ax.figure.figure, ax  # the whole figure, not a subfigure


def shortened(text: str, length: int = 28) -> str:
    """Shorten text in the middle, since names often differ at the end.

    >>> shortened("a rather long class name 17", 12)
    'a rath…me 17'
    """
    head = length // 2
    return text if len(text) <= length else f"{text[:head]}…{text[head + 1 - length :]}"


def label_text(name: str, length: int = 28) -> str:
    """Shorten a name and escape dollar signs, which matplotlib reads as mathematics."""
    return shortened(name, length).replace("$", r"\$")


def label_classes(ax: Axes, names: Sequence[str]) -> None:
    """Label the horizontal axis with class names, rotated where they would overlap."""
    labels = [label_text(name, 20) for name in names]
    rotated = len(labels) * max(map(len, labels)) > 60
    ax.set_xticks(range(len(labels)), labels, rotation=90 if rotated else 0)
    ax.set_xlim(-0.7, len(labels) - 0.3)


def class_figure_size(classes: int, height: float) -> tuple[float, float]:
    """Return the size of a figure with one column per class, with room for rotated names."""
    return max(7.5, 0.28 * classes), height + (1.5 if classes > 10 else 0)


def class_colours(count: int) -> list[str]:
    """Return one colour per class, as hexadecimal RGB."""
    # The golden ratio spreads hues evenly for any number of classes.
    hues = [(0.58 + c * 0.61803398875) % 1 for c in range(count)]
    lights = [0.38 + 0.16 * (c % 2) for c in range(count)]
    rgb = [hls_to_rgb(hue, light, 0.65) for hue, light in zip(hues, lights, strict=True)]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in rgb]


def save_figures(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Save figures as NAME.png; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png" for name in figures]
    for path, figure in zip(paths, figures.values(), strict=True):
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=150)
    return paths
