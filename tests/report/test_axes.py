import sys

import matplotlib.figure
import matplotlib.gridspec
import pytest

from randomset.errors import MissingPackageError
from randomset.report.axes import (
    class_colours,
    figure_and_axes,
    label_classes,
    label_text,
    need_matplotlib,
    panels,
    save_figures,
    shortened,
)


def test_given_axes_keep_their_figure():
    figure = matplotlib.figure.Figure()
    ax = figure.subplots()
    assert figure_and_axes(ax, (1, 1)) == (figure, ax)
    part = figure.add_subfigure(matplotlib.gridspec.GridSpec(1, 2)[0])
    assert figure_and_axes(part.subplots(), (1, 1))[0] is figure
    figure, ax = figure_and_axes(None, (3, 2))
    assert figure.axes == [ax]
    assert figure.get_size_inches().tolist() == [3, 2]


def test_labels_are_shortened_escaped_and_rotated():
    assert shortened("short") == "short"
    assert label_text("costs $5 or $6") == r"costs \$5 or \$6"
    _, (ax,) = panels(1, 1, (4, 3))
    label_classes(ax, ["cat", "dog"])
    assert [label.get_rotation() for label in ax.get_xticklabels()] == [0, 0]
    label_classes(ax, [f"a long class name {i}" for i in range(9)])
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {90}


def test_class_colours_differ():
    colours = class_colours(100)
    assert len(set(colours)) == 100
    assert all(len(colour) == 7 and int(colour[1:], 16) >= 0 for colour in colours)


def test_saved_figures_are_png_files(tmp_path):
    figure, _ = panels(1, 2, (2, 1))
    (path,) = save_figures({"name": figure}, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "name.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'randomset\[plot\]'"):
        need_matplotlib()
