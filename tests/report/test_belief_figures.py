import sys

import matplotlib.figure
import matplotlib.gridspec
import numpy as np
import pytest
import torch
from matplotlib import patches

from randomset import Budget, RandomSet
from randomset.errors import BudgetError, MissingPackageError, ShapeError
from randomset.report.belief_figures import plot_bars, plot_simplex
from tests.strategies import random_budget, random_mass

THREE = Budget.powerset(["a", "b", "c"])


def sample(seed=0):
    return RandomSet.from_mass(random_mass(THREE, seed=seed), THREE)


def test_simplex_shows_the_credal_set():
    answer = sample()
    (axes,) = plot_simplex(answer).axes
    outlines = [p for p in axes.patches if isinstance(p, patches.Polygon)]
    drawn = {tuple(round(float(v), 6) for v in corner) for corner in outlines[1].get_xy()}
    for vertex in answer.vertices().tolist():
        place = (vertex[1] + vertex[2] / 2, vertex[2] * 3**0.5 / 2)
        assert tuple(round(v, 6) for v in place) in drawn
    legend = axes.get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [
        "credal set",
        "vertices",
        "pignistic probability, BetP",
        "lower bound, Bel",
        "upper bound, Pl",
    ]


@pytest.mark.parametrize(
    ("mass", "corners"),
    [([1.0, 0, 0, 0, 0, 0, 0], 1), ([0, 0, 0, 0, 0, 0, 1.0], 3), ([0.5, 0, 0.1, 0.4, 0, 0, 0], 2)],
    ids=["point", "ignorance", "segment"],
)
def test_points_segments_and_ignorance(mass, corners, tmp_path):
    answer = RandomSet.from_mass(torch.tensor(mass), THREE)
    figure = plot_simplex(answer)
    outline = [p for p in figure.axes[0].patches if isinstance(p, patches.Polygon)][1].get_xy()
    assert len({tuple(round(float(v), 6) for v in corner) for corner in outline}) == corners
    bars = plot_bars(answer)
    drawn = [bar.get_width() for bar in bars.axes[0].containers[1]]
    assert sum(width > 0 for width in drawn) == sum(m > 0 for m in mass)
    figure.savefig(tmp_path / "figure.png")
    bars.savefig(tmp_path / "bars.png")


def test_bars_show_the_reliability_of_a_discounted_prediction():
    answer = sample()
    name = answer.label_names[0]
    for reliability, words in (
        (0.9, "familiar: reliability 0.90"),
        (0.1, "unlike the training data: reliability 0.10, below 0.50"),
    ):
        assert plot_bars(answer.discount(reliability)).get_suptitle() == f"predicted {name}; {words}"
    assert plot_bars(answer).get_suptitle() == f"predicted {name}"


def test_bars_show_the_largest_masses_and_the_intervals():
    budget = random_budget(40, 80, max_size=4)
    answer = RandomSet.from_mass(random_mass(budget), budget)
    sets, classes = plot_bars(answer, top=6).axes
    widths = [bar.get_width() for bar in sets.containers[1]]
    assert widths == pytest.approx(answer.mass.sort(descending=True).values[:6].tolist())
    best = int(answer.labels)
    assert classes.get_yticklabels()[0].get_text() == budget.classes[best]
    assert np.sort(np.asarray(classes.lines[0].get_xdata())).tolist() == pytest.approx(
        [answer.lower[best].item(), answer.upper[best].item()]
    )


def test_simplex_accepts_axes():
    figure = matplotlib.figure.Figure()
    axes = figure.subplots(1, 2)
    assert plot_simplex(sample(), ax=axes[1]) is figure
    assert axes[1].get_legend() is not None
    part = matplotlib.figure.Figure().add_subfigure(matplotlib.gridspec.GridSpec(1, 2)[0])
    assert isinstance(plot_simplex(sample(), ax=part.subplots()), matplotlib.figure.Figure)


def test_unsupported_inputs_raise_errors():
    with pytest.raises(BudgetError, match="exactly three classes; got 4 classes"):
        plot_simplex(RandomSet.from_mass(torch.tensor([0.25] * 4), Budget.singletons(4)))
    batch = RandomSet.from_mass(random_mass(THREE, 2), THREE)
    with pytest.raises(ShapeError, match=r"got \(2,\) samples\. Select one, for example answer\[0\]"):
        plot_bars(batch)


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (plot_simplex, plot_bars):
        with pytest.raises(MissingPackageError, match=r"pip install 'randomset\[plot\]'"):
            plot(sample())
