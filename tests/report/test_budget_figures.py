import sys

import numpy as np
import pytest

from randomset import Budgeter
from randomset.errors import MissingPackageError, RandomSetError
from randomset.report import plot_clusters, plot_clusters_3d, plot_overlaps


@pytest.fixture(scope="module")
def fitted():
    draw = np.random.default_rng(0)
    y = np.arange(400) % 4
    x = draw.normal(size=(400, 5)) + 3 * np.eye(4, 5)[y]
    return Budgeter("auto", classes=["ant", "bee", "cow", "dog"]).fit(x, y)


def test_clusters_in_two_dimensions(fitted):
    figure = plot_clusters(fitted)
    ax = figure.axes[0]
    assert [text.get_text() for text in ax.texts] == ["ant", "bee", "cow", "dog"]
    assert len(np.asarray(ax.collections[0].get_offsets())) == 400
    # every ellipse is the projection of its ellipsoid: it spans the bounding box
    for i, line in enumerate(ax.lines):
        half = np.ptp(np.asarray(line.get_xdata())) / 2
        assert half == pytest.approx(fitted.ellipsoids_.half_widths[i, 0], rel=1e-3)
    some = plot_clusters(fitted, classes=["bee", "dog"]).axes[0]
    assert [text.get_text() for text in some.texts] == ["bee", "dog"]
    assert len(np.asarray(some.collections[0].get_offsets())) == 200
    assert plot_clusters(fitted, axes=(2, 0)).axes[0].get_xlabel() == "dimension 3"
    with pytest.raises(RandomSetError, match="must name two dimensions"):
        plot_clusters(fitted, axes=(0, 3))


def test_a_sample_of_many_points_has_every_class():
    y = np.arange(45_000) % 10
    x = np.random.default_rng(0).normal(size=(45_000, 2)) + y[:, None]
    drawn = plot_clusters(Budgeter(3, reducer=None).fit(x, y)).axes[0].collections[0]
    assert 4900 < len(np.asarray(drawn.get_offsets())) < 5100
    assert len(np.unique(np.asarray(drawn.get_facecolor()), axis=0)) == 10


def test_clusters_in_one_dimension(fitted, tmp_path):
    flat = Budgeter(2, dimensions=1).fit(fitted.embedding_, fitted.labels_)
    figure = plot_clusters(flat)
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["0", "1", "2", "3"]
    reach = np.ptp(np.asarray(figure.axes[0].lines[0].get_xdata())) / 2
    assert reach == pytest.approx(flat.ellipsoids_.half_widths[0, 0])
    figure.savefig(tmp_path / "flat.png")


def test_overlap_curve_and_its_knee(fitted, tmp_path):
    figure = plot_overlaps(fitted)
    ax = figure.axes[0]
    shown = np.concatenate([np.asarray(line.get_ydata()) for line in ax.lines[:1]])
    np.testing.assert_allclose(shown, fitted.curve_.overlaps)
    legend = ax.get_legend()
    assert legend is not None
    assert f"knee: {fitted.budget_.num_sets} sets" in [text.get_text() for text in legend.get_texts()]
    assert ax.texts[0].get_text().lstrip().startswith("1  {")
    figure.savefig(tmp_path / "curve.png")


def test_overlap_curve_of_enlarged_ellipsoids(fitted):
    grown = Budgeter(11).fit(fitted.embedding_ * [1, 9, 1] + 9 * fitted.labels_[:, None], fitted.labels_)
    parts = len(set(grown.ranking_.radii.tolist()))
    assert parts > 1
    assert len(plot_overlaps(grown).axes[0].lines) == 2 * parts - 1  # segments, and lines between them


def test_clusters_in_three_dimensions(fitted, tmp_path):
    figure = plot_clusters_3d(fitted)
    assert [trace.type for trace in figure.data] == ["scatter3d", "surface"] * 4
    surface = figure.data[1]
    corners = np.stack([surface.x, surface.y, surface.z]).reshape(3, -1)
    away = (corners.T - fitted.ellipsoids_.centres[0]) @ fitted.ellipsoids_.whitening[0].T
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), fitted.ellipsoids_.radius, rtol=1e-6)
    figure.write_html(tmp_path / "clusters.html")
    assert (tmp_path / "clusters.html").stat().st_size > 10_000
    with pytest.raises(RandomSetError, match="needs three dimensions"):
        plot_clusters_3d(Budgeter(2, dimensions=2).fit(fitted.embedding_, fitted.labels_))


def test_missing_fit_and_missing_package(fitted, monkeypatch):
    with pytest.raises(RandomSetError, match=r"needs a fitted Budgeter; got Budgeter\. Call fit"):
        plot_clusters(Budgeter())
    with pytest.raises(RandomSetError, match="needs a fitted Budgeter; got Budget"):
        plot_overlaps(fitted.budget_)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MissingPackageError, match="randomset\\[interactive\\]"):
        plot_clusters_3d(fitted)
