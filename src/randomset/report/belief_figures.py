"""Figures of a single belief function: its credal set in the simplex, and its masses and beliefs as bars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from randomset.belief.random_set import RandomSet
from randomset.belief.text import reliability_text, set_name
from randomset.errors import BudgetError, ShapeError
from randomset.report.axes import BLUE, DARK, ORANGE, figure_and_axes, panels, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_bars", "plot_simplex"]

_HEIGHT = math.sqrt(3) / 2


def plot_simplex(sample: RandomSet, *, ax: Axes | None = None) -> Figure:
    """Plot the credal set of one sample over three classes in the probability simplex.

    Solid lines are the lower bounds P(c) = Bel({c}), dashed lines the upper bounds P(c) = Pl({c}). The
    diamond is the pignistic probability.

    >>> import torch
    >>> from randomset import Budget
    >>> budget = Budget.from_sets([{"c1", "c2"}], ["c1", "c2", "c3"])
    >>> figure = plot_simplex(RandomSet.from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4]), budget))
    >>> len(figure.axes)
    1
    """
    sample = _single(sample)
    classes = sample.budget.classes
    if len(classes) != 3:
        raise BudgetError(
            "plot_simplex needs exactly three classes",
            got=f"{len(classes)} classes",
            remedy="Use plot_bars, which takes any number of classes",
        )
    figure, ax = figure_and_axes(ax, (7, 5))
    ax.set_aspect("equal")
    ax.axis("off")
    ax.fill(*_to_plane([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), fill=False, edgecolor="black", linewidth=1.2)
    anchors = [
        ((-0.03, -0.03), "right", "top"),
        ((1.03, -0.03), "left", "top"),
        ((0.5, _HEIGHT + 0.03), "center", "bottom"),
    ]
    for name, (corner, horizontal, vertical) in zip(classes, anchors, strict=True):
        ax.text(*corner, name, ha=horizontal, va=vertical, fontsize=12, fontweight="bold")

    vertices = sample.vertices().unique(dim=0)
    centre = vertices.mean(0)
    x, y = _to_plane(vertices.tolist())
    (centre_x,), (centre_y,) = _to_plane([centre.tolist()])
    order = sorted(range(len(x)), key=lambda i: math.atan2(y[i] - centre_y, x[i] - centre_x))
    outline = [[x[i] for i in order], [y[i] for i in order]]
    ax.fill(*outline, facecolor=BLUE, edgecolor=DARK, linewidth=2.5, alpha=0.8, label="credal set")
    ax.plot(x, y, "o", color=DARK, markersize=5, label="vertices")
    lower, upper = sample.lower.tolist(), sample.upper.tolist()
    for c in range(3):
        bounds = [(lower[c], "-", "Bel"), (upper[c], "--", "Pl")]
        if upper[c] - lower[c] < 0.005:
            bounds = [(lower[c], "-", "Bel = Pl")]
        for value, style, name in bounds:
            if 0.005 < value < 0.995:  # not on the edges of the triangle
                ends = _level(c, value)
                ax.plot(*_to_plane(ends), style, color="0.35", linewidth=1, zorder=0)
                _label_end(ax, ends, c, f"{name}({classes[c]}) = {value:.2f}")
    point = _to_plane([sample.pignistic.tolist()])
    ax.plot(*point, marker="D", linestyle="", color=ORANGE, markersize=9, label="pignistic probability, BetP")
    ax.plot([], [], "-", color="0.35", label="lower bound, Bel")
    ax.plot([], [], "--", color="0.35", label="upper bound, Pl")
    ax.legend(loc="upper left", bbox_to_anchor=(0, 1), frameon=False, fontsize=9)
    ax.set_xlim(-0.3, 1.3)
    ax.set_ylim(-0.1, _HEIGHT + 0.1)
    return figure


def plot_bars(sample: RandomSet, *, top: int = 10) -> Figure:
    """Plot the largest masses of one sample with their beliefs, and the intervals of its top classes.

    The title has the reliability of a discounted prediction.

    >>> import torch
    >>> from randomset import Budget
    >>> budget = Budget.from_sets([{"c1", "c2"}], ["c1", "c2", "c3"])
    >>> figure = plot_bars(RandomSet.from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4]), budget))
    >>> [axis.get_xlabel() for axis in figure.axes]
    ['mass and belief', 'probability']
    """
    sample = _single(sample)
    budget = sample.budget
    shown = [k for k in sample.mass.argsort(descending=True, stable=True).tolist() if sample.mass[k] > 0]
    shown = shown[:top]
    likely = sample.pignistic.argsort(descending=True, stable=True)[:top].tolist()
    height = 1.2 + 0.36 * max(len(shown), len(likely))
    figure, (sets, classes) = panels(1, 2, (9, height))
    names = [shortened(set_name(budget, k)) for k in shown]
    rows = list(range(len(shown)))
    sets.barh(rows, [sample.belief[k].item() for k in shown], 0.75, color=BLUE, label="belief")
    masses = [sample.mass[k].item() for k in shown]
    sets.barh(rows, masses, 0.4, color=DARK, hatch="//", edgecolor="white", label="mass")
    sets.set_yticks(rows, names)
    sets.set_xlabel("mass and belief")
    sets.legend(loc="lower right", frameon=False)

    for row, c in enumerate(likely):
        low, high = sample.lower[c].item(), sample.upper[c].item()
        classes.plot([low, high], [row, row], color=BLUE, linewidth=9, solid_capstyle="butt", zorder=1)
        classes.plot([low, high], [row, row], "|", color=DARK, markersize=12, zorder=2)
        classes.plot(sample.pignistic[c].item(), row, "D", color=ORANGE, zorder=3)
    classes.plot([], [], color=BLUE, linewidth=9, label="[Bel, Pl]")
    classes.plot([], [], "D", color=ORANGE, label="BetP")
    classes.set_yticks(range(len(likely)), [shortened(budget.classes[c]) for c in likely])
    classes.set_xlabel("probability")
    classes.legend(loc="lower right", frameon=False)
    for axis, count in ((sets, len(shown)), (classes, len(likely))):
        axis.set_xlim(0, 1)
        axis.set_ylim(count - 0.4, -0.6)
    figure.suptitle(shortened(f"predicted {sample.label_names[0]}", 80) + _support(sample))
    return figure


def _single(sample: RandomSet) -> RandomSet:
    if sample.shape.numel() != 1:
        raise ShapeError(
            "expected a single sample",
            got=f"{tuple(sample.shape)} samples",
            remedy="Select one, for example answer[0]",
        )
    mass = sample.mass.detach().cpu().double().reshape(-1)
    reliability = sample.reliability.detach().cpu().double().reshape(()) if sample.is_discounted else None
    return RandomSet(mass, sample.budget, sample.validity, reliability, sample.familiar_from)


def _support(sample: RandomSet) -> str:
    """Return the part of the title that tells the reliability of a discounted prediction."""
    if not sample.is_discounted:
        return ""
    return f"; {reliability_text(sample.reliability.item(), sample.familiar_from)}"


def _to_plane(points: list[list[float]]) -> tuple[list[float], list[float]]:
    """Map probabilities of three classes to points in the plane."""
    return [p[1] + p[2] / 2 for p in points], [p[2] * _HEIGHT for p in points]


def _level(c: int, value: float) -> list[list[float]]:
    """Return the end points of the line P(c) = value."""
    ends = []
    for other in (k for k in range(3) if k != c):
        end = [0.0, 0.0, 0.0]
        end[c], end[other] = value, 1 - value
        ends.append(end)
    return ends


def _label_end(ax: Axes, ends: list[list[float]], c: int, text: str) -> None:
    """Label a line at one end; each class uses its own side of the triangle."""
    end, horizontal, vertical, dx, dy = [
        (0, "center", "top", 0.0, -0.015),
        (1, "left", "center", 0.02, 0.0),
        (0, "right", "center", -0.02, 0.0),
    ][c]
    x, y = _to_plane(ends)
    ax.text(x[end] + dx, y[end] + dy, text, ha=horizontal, va=vertical, fontsize=8, color="0.25")
