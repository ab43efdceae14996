"""Figures of how a budget was chosen: class ellipsoids in two and three dimensions, and the overlap curve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from randomset._core.checks import braces
from randomset._core.packages import optional_package
from randomset.budgeting.overlap import NEGLIGIBLE
from randomset.budgeting.reduce import stratified_sample
from randomset.errors import RandomSetError
from randomset.report.axes import DARK, MAX_POINTS, ORANGE, class_colours, figure_and_axes, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from randomset.budgeting.budgeter import Budgeter

__all__ = ["plot_clusters", "plot_clusters_3d", "plot_overlaps"]


def plot_clusters(
    budgeter: Budgeter,
    *,
    axes: tuple[int, int] = (0, 1),
    classes: Iterable[str | SupportsIndex] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the reduced features and the ellipses of the classes in two dimensions.

    An ellipse is the projection of its ellipsoid, so ellipses may overlap where the ellipsoids do not. Each
    name is placed where its ellipse is farthest from the other classes.

    Args:
        budgeter: a fitted one.
        axes: the two dimensions to plot.
        classes: the classes to plot; all by default.
        ax: the axes to plot on; a new figure by default.

    >>> from randomset.budgeting import Budgeter
    >>> draw = np.random.default_rng(0)
    >>> budgeter = Budgeter(1, reducer=None).fit(draw.normal(size=(40, 2)), np.repeat([0, 1], 20))
    >>> plot_clusters(budgeter).axes[0].get_xlabel()
    'dimension 1'
    """
    _check_fitted(budgeter)
    ellipsoids = budgeter.ellipsoids_
    if ellipsoids.dimensions == 1:
        return _plot_intervals(budgeter, ax)
    valid = all(0 <= axis < ellipsoids.dimensions for axis in axes)
    if len(axes) != 2 or not valid or axes[0] == axes[1]:
        expected = f"two different integers from 0 to {ellipsoids.dimensions - 1}"
        raise RandomSetError("axes must name two dimensions", got=axes, expected=expected)
    budget = budgeter.budget_
    shown = (
        range(budget.num_classes)
        if classes is None
        else budget.mask_from_sets([classes])[0].nonzero()[:, 0].tolist()
    )
    points, labels = _sampled_points(budgeter)
    figure, ax = figure_and_axes(ax, (8, 6.5))
    colours = class_colours(budget.num_classes)
    drawn = np.isin(labels, list(shown))
    x, y = points[drawn][:, axes[0]], points[drawn][:, axes[1]]
    ax.scatter(x, y, c=[colours[c] for c in labels[drawn].tolist()], s=4, alpha=0.4, linewidths=0)
    angles = np.linspace(0, 2 * math.pi, 200)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    centres = ellipsoids.centres[:, list(axes)]
    label_positions: list[NDArray[np.float64]] = []
    size = max(6, 11 - len(shown) // 8)
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1}
    for c in shown:
        others = centres[np.isin(ellipsoids.class_of, [k for k in shown if k != c])]
        others = np.concatenate([others, *label_positions])
        best_distance, position = -1.0, centres[0]
        for i in np.flatnonzero(ellipsoids.class_of == c).tolist():
            spread = (ellipsoids.axes[i] @ ellipsoids.axes[i].T)[np.ix_(axes, axes)]
            outline = centres[i][:, None] + ellipsoids.radius * np.linalg.cholesky(spread) @ circle
            ax.plot(*outline, color=colours[c], linewidth=1.8 if len(shown) <= 30 else 1.0)
            distance = np.linalg.norm(outline.T[:, None] - others, axis=-1).min(1, initial=np.inf)
            if distance.max() > best_distance:
                best_distance, position = float(distance.max()), outline[:, distance.argmax()]
        if best_distance >= 0:
            label_positions.append(position[None])
            (left, height), name = position.tolist(), shortened(budgeter.classes_[c], 16)
            ax.text(left, height, name, color=colours[c], fontsize=size, ha="center", va="center", bbox=box)
    ax.set_xlabel(f"dimension {axes[0] + 1}")
    ax.set_ylabel(f"dimension {axes[1] + 1}")
    ax.set_title(_title(budgeter, "ellipses"))
    return figure


def _plot_intervals(budgeter: Budgeter, ax: Axes | None) -> Figure:
    """Plot one dimension: a row per class with its points and its interval."""
    points, labels = _sampled_points(budgeter)
    figure, ax = figure_and_axes(ax, (8, 1.2 + 0.3 * len(budgeter.classes_)))
    colours = class_colours(len(budgeter.classes_))
    ax.scatter(points[:, 0], labels, c=[colours[c] for c in labels.tolist()], s=4, alpha=0.4, linewidths=0)
    ellipsoids = budgeter.ellipsoids_
    left = ellipsoids.centres[:, 0] - ellipsoids.half_widths[:, 0]
    right = ellipsoids.centres[:, 0] + ellipsoids.half_widths[:, 0]
    for low, high, c in zip(left, right, ellipsoids.class_of.tolist(), strict=True):
        ax.plot([low, high], [c - 0.25] * 2, color=colours[c], linewidth=2.5)
    ax.set_yticks(range(len(budgeter.classes_)), [shortened(name, 20) for name in budgeter.classes_])
    ax.set_xlabel("dimension 1")
    ax.set_title(_title(budgeter, "intervals"))
    return figure


def plot_overlaps(budgeter: Budgeter, *, names: int = 10, ax: Axes | None = None) -> Figure:
    """Plot the overlap curve: the intersection over union of each set by rank, and the cut-off.

    The band is ± 2 standard errors. With `num_sets="auto"` the curve continues beyond the chosen sets, with
    the straight line from which the knee is measured. Where the ellipsoids had to be enlarged, each radius
    starts a new segment. The first `names` sets are listed beside the curve.

    >>> from randomset.budgeting import Budgeter
    >>> draw = np.random.default_rng(0)
    >>> budgeter = Budgeter(1, reducer=None).fit(draw.normal(size=(40, 2)), np.repeat([0, 1], 20))
    >>> plot_overlaps(budgeter).axes[0].get_xlabel()
    'sets of classes, by rank'
    """
    _check_fitted(budgeter)
    chosen, curve = budgeter.ranking_, budgeter.curve_ or budgeter.ranking_
    figure, ax = figure_and_axes(ax, (9, 4.5))
    from matplotlib.ticker import MaxNLocator

    rank = np.arange(1, len(curve) + 1)
    low, high = curve.overlaps - 2 * curve.errors, curve.overlaps + 2 * curve.errors
    ax.fill_between(rank, low, high, color=DARK, alpha=0.25, lw=0, label="± 2 standard errors")
    style = "o-" if len(curve) <= 60 else "-"
    growth = "ellipsoids enlarged"
    for radius in np.unique(curve.radii):
        part = curve.radii == radius
        ax.plot(rank[part], curve.overlaps[part], style, color=DARK, markersize=4, linewidth=1.2)
        if radius > curve.radii.min():
            ax.axvline(rank[part][0] - 0.5, color="0.6", linewidth=0.8, linestyle=":", label=growth)
            growth = "_"  # one legend entry is enough
    if budgeter.curve_ is not None and len(chosen):
        kept = int((curve.overlaps >= NEGLIGIBLE * curve.overlaps[0]).sum())
        ax.plot([1, kept], curve.overlaps[[0, kept - 1]], "--", color="0.6", linewidth=1, label="no knee")
        ax.axvline(len(chosen), color=ORANGE, linewidth=1.2, label=f"knee: {len(chosen)} sets")
    ax.legend(frameon=False, fontsize=8)
    best = [
        f"{i + 1:>2}  {braces([shortened(budgeter.classes_[c], 14) for c in focal], shorten=4)}"
        for i, focal in enumerate(chosen.sets[:names])
    ]
    ax.text(1.02, 1.0, "\n".join(best), transform=ax.transAxes, ha="left", va="top", fontsize=8)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylim(0, 1.1 * float(curve.overlaps.max(initial=1e-9)))
    ax.set_xlabel("sets of classes, by rank")
    ax.set_ylabel("intersection over union")
    return figure


def plot_clusters_3d(budgeter: Budgeter) -> Any:
    """Plot the reduced features and the ellipsoids of the classes in an interactive 3-D view.

    Returns a plotly figure: call `.show()` or `.write_html("clusters.html")`. Clicking a name in the legend
    hides that class.
    """
    _check_fitted(budgeter)
    with optional_package("plotly", "interactive"):
        from plotly import graph_objects as go
    if budgeter.gaussians_.dimensions != 3:
        raise RandomSetError(
            "plot_clusters_3d needs three dimensions",
            got=f"{budgeter.gaussians_.dimensions} dimensions",
            remedy="Use plot_clusters, which plots any two",
        )
    points, labels = _sampled_points(budgeter)
    colours = class_colours(len(budgeter.classes_))
    ellipsoids = budgeter.ellipsoids_
    polar, azimuth = np.meshgrid(np.linspace(0, math.pi, 16), np.linspace(0, 2 * math.pi, 28))
    sphere = np.stack([np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)])
    figure = go.Figure()
    for c, name in enumerate(budgeter.classes_):
        group = {"legendgroup": name, "name": name}
        marker = {"size": 1.5, "color": colours[c], "opacity": 0.5}
        x, y, z = points[labels == c].T
        figure.add_trace(go.Scatter3d(x=x, y=y, z=z, mode="markers", marker=marker, **group))
        style = {"opacity": 0.25, "showscale": False, "colorscale": [[0, colours[c]], [1, colours[c]]]}
        for i in np.flatnonzero(ellipsoids.class_of == c):
            surface = ellipsoids.radius * np.einsum("ij,jkl->ikl", ellipsoids.axes[i], sphere)
            x, y, z = ellipsoids.centres[i][:, None, None] + surface
            figure.add_trace(go.Surface(x=x, y=y, z=z, hoverinfo="name", **style, **group))
    figure.update_layout(
        title=_title(budgeter, "ellipsoids"),
        legend={"itemsizing": "constant"},
        margin={"l": 0, "r": 0, "b": 0},
        scene={f"{axis}axis_title": f"dimension {i + 1}" for i, axis in enumerate("xyz")},
    )
    return figure


def _check_fitted(budgeter: Any) -> None:
    if not hasattr(budgeter, "ellipsoids_"):
        raise RandomSetError(
            "the figure needs a fitted Budgeter",
            got=type(budgeter).__name__,
            remedy="Call fit(features, labels) first" if hasattr(budgeter, "fit") else "",
        )


def _title(budgeter: Budgeter, shape: str) -> str:
    grown = ", enlarged until sets overlap" if budgeter.report_.growth else ""
    return f"{100 * budgeter.coverage:g} % {shape} of {len(budgeter.classes_)} classes{grown}"


def _sampled_points(budgeter: Budgeter) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the points to plot: all, or a stratified sample."""
    sample = stratified_sample(budgeter.labels_, MAX_POINTS)
    return budgeter.embedding_[sample], budgeter.labels_[sample]
