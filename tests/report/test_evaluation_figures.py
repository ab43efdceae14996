import sys

import matplotlib.figure
import numpy as np
import pytest
import torch

from randomset.errors import MissingPackageError, RandomSetError
from randomset.evaluation import Prediction, evaluate
from randomset.report.axes import shortened
from randomset.report.detection_figures import plot_conformal, plot_detection
from randomset.report.evaluation_figures import (
    draw_all,
    plot_against_confidence,
    plot_intervals,
    plot_reliability,
    plot_widths_by_class,
)
from tests.report.conftest import NAMES, axes_of, correct_of


def many(classes=60):
    p = torch.rand(3000, classes).softmax(1)
    width = torch.rand(3000)
    labels = torch.arange(3000) % classes
    model = lambda rows: Prediction(p[rows[:, 0]], {"credal width": width[rows[:, 0]]})  # noqa: E731
    return evaluate(model, (torch.arange(3000)[:, None], labels), batch_size=3000), p, width


def test_reliability_bars_are_accuracies_and_their_gaps_add_up_to_the_ece(full):
    upper, lower = axes_of(plot_reliability(full))
    confidence, correct = full.predictions["test"].confidence.double().numpy(), correct_of(full)
    accuracy, gap = upper.containers
    (share,) = lower.containers
    bins = np.clip(np.ceil(10 * confidence) - 1, 0, 9).astype(int)
    assert len(accuracy) == len(set(bins.tolist()))  # empty bins have no bar
    for bar, difference, part, bin in zip(accuracy, gap, share, sorted(set(bins.tolist())), strict=True):
        assert bar.get_x() == pytest.approx(bin / 10)
        assert bar.get_height() == pytest.approx(correct[bins == bin].mean())
        assert bar.get_height() + difference.get_height() == pytest.approx(confidence[bins == bin].mean())
        assert part.get_height() == pytest.approx(100 * (bins == bin).mean())
    error = sum(abs(a.get_height()) * b.get_height() / 100 for a, b in zip(gap, share, strict=True))
    assert error == pytest.approx(full["test"]["ece"])
    assert f"{error:.4f}" in upper.get_title()


def test_scatter_marks_correct_and_wrong_predictions(full):
    entropy, width = axes_of(plot_against_confidence(full))
    correct, tested = correct_of(full), full.predictions["test"]
    for axes, name in ((entropy, "entropy"), (width, "credal width")):
        for among, points in zip((correct, ~correct), axes.collections, strict=True):
            expected = np.stack([tested.confidence.numpy()[among], tested.scores[name].numpy()[among]], 1)
            assert np.asarray(points.get_offsets()) == pytest.approx(expected)
    marks = [points.get_paths()[0].vertices.shape for points in entropy.collections]
    assert marks[0] != marks[1]


def test_scatter_draws_the_same_5000_of_many_points():
    p = torch.rand(6000, 3).softmax(1)
    result = evaluate(
        lambda rows: p[rows[:, 0]], (torch.arange(6000)[:, None], torch.arange(6000) % 3), batch_size=6000
    )
    drawn = [
        np.concatenate(
            [
                np.asarray(part.get_offsets())
                for part in axes_of(plot_against_confidence(result))[0].collections
            ]
        )
        for _ in range(2)
    ]
    assert len(drawn[0]) == 5000
    assert (drawn[0] == drawn[1]).all()
    assert {round(x, 6) for x in drawn[0][:, 0]} <= {round(x, 6) for x in p.amax(1).double().tolist()}


def test_boxes_span_the_quartiles_of_each_class(full):
    axes = axes_of(plot_widths_by_class(full))[0]
    tested, correct = full.predictions["test"], correct_of(full)
    predicted, width = tested.labels.numpy(), tested.scores["credal width"].double().numpy()
    shown = sorted(set(predicted.tolist()))
    expected = {}
    for among, shift in ((correct, -0.2), (~correct, 0.2)):
        for i, c in enumerate(shown):
            mine = width[among & (predicted == c)]
            if len(mine):
                expected[round(i + shift, 3)] = np.percentile(mine, [25, 75])
    found = {}
    for box in axes.patches:
        corners = box.get_path().vertices
        found[round(float(corners[:4, 0].mean()), 3)] = (corners[:4, 1].min(), corners[:4, 1].max())
    assert found.keys() == expected.keys()
    for place, quartiles in expected.items():
        assert found[place] == pytest.approx(tuple(quartiles))
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert names == [
        {"dog $5": r"dog \$5", NAMES[2]: shortened(NAMES[2], 20)}.get(NAMES[c], NAMES[c]) for c in shown
    ]
    assert {box.get_hatch() or "" for box in axes.patches} == {"", "////"}


@pytest.mark.slow
def test_widths_of_many_classes_show_the_widest():
    result, p, width = many()
    axes = axes_of(plot_widths_by_class(result))[0]
    predicted = p.argmax(1)
    mean = torch.stack([width[predicted == c].mean() for c in range(60)])
    best = mean.argsort(descending=True)[:40].tolist()
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(c) for c in best]
    assert len(axes.patches) == 40
    assert "the 40 widest of 60" in axes.get_title()


def test_intervals_span_lower_to_upper_around_the_pignistic_probability(full):
    axes = axes_of(plot_intervals(full, samples=50, seed=3))[0]
    bars = [np.asarray(part) for part in axes.collections[0].get_segments()]
    assert len(bars) == 50
    tested = full.predictions["test"]
    rows = torch.arange(300), tested.labels
    known = {
        round(p, 6): (low, high, bool(ok))
        for p, low, high, ok in zip(
            *(part[rows].tolist() for part in (tested.probabilities, tested.lower, tested.upper)),
            correct_of(full),
            strict=True,
        )
    }
    points: dict[int, tuple[float, bool]] = {}
    for line, ok in zip(axes.lines, (True, False), strict=True):
        points |= {int(x): (float(y), ok) for x, y in zip(*line.get_data(), strict=True)}
    heights = [points[place][0] for place in range(1, 51)]
    assert heights == sorted(heights)
    for place, bar in enumerate(bars, 1):
        height, ok = points[place]
        assert known[round(height, 6)] == (pytest.approx(bar[0, 1]), pytest.approx(bar[1, 1]), ok)
    other = axes_of(plot_intervals(full, samples=50, seed=4))[0].lines[0].get_ydata()
    assert not np.array_equal(other, axes.lines[0].get_ydata())
    assert len(axes_of(plot_intervals(full, samples=10**6))[0].collections[0].get_segments()) == 300


@pytest.mark.slow
def test_draw_all_saves_every_figure_with_data(full, plain, discounted, tmp_path, monkeypatch):
    sizes = []
    save = matplotlib.figure.Figure.savefig

    def save_coarsely(figure, path, *, dpi, **options):  # the full size takes seconds
        sizes.append(dpi)
        save(figure, path, dpi=20, **options)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", save_coarsely)
    paths = draw_all(full, tmp_path / "new" / "figures")
    assert [path.stem for path in paths] == [
        *("reliability", "detection_entropy", "detection_credal_width"),
        *("densities_entropy", "densities_credal_width", "confidence", "widths", "intervals"),
        *("conformal", "noise", "rotation"),
    ]
    assert {path.read_bytes()[:8] for path in paths} == {b"\x89PNG\r\n\x1a\n"}
    assert sizes == [150] * 11
    assert sorted(paths) == sorted((tmp_path / "new" / "figures").iterdir())
    assert [path.name for path in draw_all(plain, str(tmp_path))] == [
        *("reliability.png", "densities_entropy.png", "confidence.png")
    ]
    names = [path.stem for path in draw_all(discounted[1], tmp_path)]
    assert "densities_reliability" in names
    draw_all(plain, tmp_path)
    assert not (tmp_path / "densities_reliability.png").exists()


def test_single_panel_figures_accept_axes(full):
    figure = matplotlib.figure.Figure()
    left, right = figure.subplots(1, 2)
    assert plot_intervals(full, ax=left) is figure
    assert plot_widths_by_class(full, ax=right) is figure
    assert left.get_title() == "100 of 300 test inputs"
    assert right.get_ylabel() == "credal width"


def test_missing_parts_raise_errors(full, plain):
    with pytest.raises(
        RandomSetError, match="unknown score; got credal width; expected one of entropy, 1 - maximum"
    ):
        plot_widths_by_class(plain)
    with pytest.raises(RandomSetError, match="does not predict intervals; expected lower and upper"):
        plot_intervals(plain)
    with pytest.raises(RandomSetError, match="got 0; expected 1 or more"):
        plot_intervals(full, samples=0)


def test_missing_matplotlib_names_the_extra(full, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (plot_reliability, plot_detection, plot_intervals, plot_conformal):
        with pytest.raises(MissingPackageError, match=r"pip install 'randomset\[plot\]'"):
            plot(full)
