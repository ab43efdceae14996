import dataclasses
import sys
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import torch
from sklearn.metrics import auc

from randomset import RandomSet
from randomset.errors import MissingPackageError, RandomSetError
from randomset.evaluation import Evaluation, Prediction, evaluate
from randomset.report.axes import shortened
from randomset.report.detection_figures import plot_conformal, plot_densities, plot_detection, plot_levels
from randomset.report.evaluation_figures import (
    draw_all,
    plot_against_confidence,
    plot_intervals,
    plot_reliability,
    plot_widths_by_class,
)
from tests.strategies import random_budget

GENERATOR = torch.Generator().manual_seed(0)
BUDGET = random_budget(5, 9, max_size=3)
NAMES = ["cat", "dog $5", "a class with a very long name indeed", "_e", "f"]


def masses(images):
    return (4 * images.flatten(1)[:, : len(BUDGET)]).softmax(1)


def images(samples, scale=1.0):
    return scale * torch.rand(samples, 1, 5, 5, generator=GENERATOR)


def as_random_set(inputs):
    return Prediction.from_random_set(RandomSet.from_mass(masses(inputs), BUDGET))


def as_softmax(inputs):
    return (6 * inputs.flatten(1)[:, :5]).softmax(1)


def measured(model):
    inputs = images(300)
    truth = model(inputs)
    truth = truth.labels if isinstance(truth, Prediction) else truth.argmax(1)
    labels = torch.where(torch.rand(300, generator=GENERATOR) < 0.7, truth, truth + 1) % 4  # no class 4
    return evaluate(
        model,
        (inputs, labels),
        {"flat": images(90, 0.2), "bright": 1 - images(40, 0.5)},
        validation=(images(80), torch.arange(80) % 4),
        classes=NAMES,
        noise=[0.5, 0.2],
        rotation=[(-60, 0), (0, 60)],
        samples=40,
        bins=10,
    )


@pytest.fixture(scope="module")
def full():
    return measured(as_random_set)


@pytest.fixture(scope="module")
def plain():
    data = images(30), torch.arange(30) % 5
    return evaluate(as_softmax, data)


def many(classes=60):
    p = torch.rand(3000, classes, generator=GENERATOR).softmax(1)
    width = torch.rand(3000, generator=GENERATOR)
    labels = torch.arange(3000) % classes
    model = lambda rows: Prediction(p[rows[:, 0]], {"credal width": width[rows[:, 0]]})  # noqa: E731
    return evaluate(model, (torch.arange(3000)[:, None], labels), batch_size=3000), p, width


def axes_of(figure: matplotlib.figure.Figure) -> Any:
    """Return the axes, without the types of matplotlib's parts, which know little."""
    return figure.axes


def right_of(result):
    return (result.predictions["test"].labels == result.labels["test"]).numpy()


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_reliability_bars_are_the_accuracies_and_the_gaps_add_up_to_the_error(full):
    upper, lower = axes_of(plot_reliability(full))
    confidence, right = full.predictions["test"].confidence.double().numpy(), right_of(full)
    accuracy, gap = upper.containers
    (share,) = lower.containers
    bins = np.clip(np.ceil(10 * confidence) - 1, 0, 9).astype(int)
    assert len(accuracy) == len(set(bins.tolist()))  # empty bins have no bar
    for bar, difference, part, bin in zip(accuracy, gap, share, sorted(set(bins.tolist())), strict=True):
        assert bar.get_x() == pytest.approx(bin / 10)
        assert bar.get_height() == pytest.approx(right[bins == bin].mean())
        assert bar.get_height() + difference.get_height() == pytest.approx(confidence[bins == bin].mean())
        assert part.get_height() == pytest.approx(100 * (bins == bin).mean())
    error = sum(abs(a.get_height()) * b.get_height() / 100 for a, b in zip(gap, share, strict=True))
    assert error == pytest.approx(full["test"]["ece"])
    assert f"{error:.4f}" in upper.get_title()


@pytest.mark.parametrize("score", ["entropy", "credal width", "rank average"])
def test_the_areas_under_the_curves_are_the_stored_ones(full, score):
    roc, precision_recall = axes_of(plot_detection(full, score))
    curves = roc.lines[1:]  # the first is chance
    assert len(curves) == len(precision_recall.lines) == 2
    for i, (name, found) in enumerate(full["ood"].items()):
        stored = found["scores"][score]
        assert auc(*curves[i].get_data()) == pytest.approx(stored["auroc"])
        recall, precision = map(np.asarray, precision_recall.lines[i].get_data())
        assert -(np.diff(recall) * precision[:-1]).sum() == pytest.approx(stored["auprc"])
        assert legend_of(roc)[i] == f"{stored['auroc']:.3f}  {name}"
        share = found["samples"] / (found["samples"] + 300)
        assert legend_of(precision_recall)[i] == f"{stored['auprc']:.3f}  {name}, chance {share:.2f}"
    assert curves[0].get_linestyle() != curves[1].get_linestyle()
    assert curves[0].get_color() != curves[1].get_color()


def test_densities_count_every_input_once_in_bins_that_all_share(full):
    answers, sets = axes_of(plot_densities(full, "credal width"))
    right = right_of(full)
    known = full.predictions["test"].scores["credal width"].numpy()
    flat = full.predictions["flat"].scores["credal width"].numpy()
    for part, values in zip(
        [*answers.patches, sets.patches[1]], [known[right], known[~right], flat], strict=True
    ):
        share, edges, _ = part.get_data()
        assert np.nansum(share) == pytest.approx(100)
        assert np.nan_to_num(share) == pytest.approx(100 * np.histogram(values, edges)[0] / len(values))
        assert edges == pytest.approx(sets.patches[0].get_data().edges)
    assert legend_of(sets) == ["test data (300)", "unknown: flat (90)", "unknown: bright (40)"]
    assert answers.get_yscale() == "log"
    assert axes_of(plot_densities(full))[0].get_xlabel() == "entropy, bits"


def test_densities_of_equal_scores_and_of_names_that_shorten_alike():
    names = ["a long name that ends with the number " + digit for digit in "12"]
    sure = lambda rows: torch.eye(2)[torch.zeros(len(rows), dtype=torch.long)]  # noqa: E731
    data = torch.rand(4, 2), torch.zeros(4, dtype=torch.long)
    result = evaluate(sure, data, {name: torch.rand(i + 1, 2) for i, name in enumerate(names)})
    answers, sets = axes_of(plot_densities(result))
    assert answers.patches[0].get_data().values.max() == 100
    assert legend_of(answers) == ["right (4)", "wrong (0)"]
    assert legend_of(sets)[1:] == [f"unknown: {shortened(name)} ({n})" for n, name in enumerate(names, 1)]


def test_scatter_marks_right_and_wrong_where_they_are(full):
    entropy, width = axes_of(plot_against_confidence(full))
    right, tested = right_of(full), full.predictions["test"]
    for axes, name in ((entropy, "entropy"), (width, "credal width")):
        for among, points in zip((right, ~right), axes.collections, strict=True):
            expected = np.stack([tested.confidence.numpy()[among], tested.scores[name].numpy()[among]], 1)
            assert np.asarray(points.get_offsets()) == pytest.approx(expected)
    marks = [points.get_paths()[0].vertices.shape for points in entropy.collections]
    assert marks[0] != marks[1]


def test_of_many_points_the_same_5000_are_drawn():
    p = torch.rand(6000, 3, generator=GENERATOR).softmax(1)
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


def test_boxes_stand_at_the_quartiles_of_each_class(full):
    axes = axes_of(plot_widths_by_class(full))[0]
    tested, right = full.predictions["test"], right_of(full)
    predicted, width = tested.labels.numpy(), tested.scores["credal width"].double().numpy()
    shown = sorted(set(predicted.tolist()))
    expected = {}
    for among, shift in ((right, -0.2), (~right, 0.2)):
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
def test_of_many_classes_the_widest_are_shown():
    result, p, width = many()
    axes = axes_of(plot_widths_by_class(result))[0]
    predicted = p.argmax(1)
    mean = torch.stack([width[predicted == c].mean() for c in range(60)])
    best = mean.argsort(descending=True)[:40].tolist()
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(c) for c in best]
    assert len(axes.patches) == 40
    assert "the 40 widest of 60" in axes.get_title()


def test_intervals_run_from_lower_to_upper_through_the_pignistic_probability(full):
    axes = axes_of(plot_intervals(full, samples=50, seed=3))[0]
    bars = [np.asarray(part) for part in axes.collections[0].get_segments()]
    assert len(bars) == 50
    tested = full.predictions["test"]
    rows = torch.arange(300), tested.labels
    known = {
        round(p, 6): (low, high, bool(ok))
        for p, low, high, ok in zip(
            *(part[rows].tolist() for part in (tested.probabilities, tested.lower, tested.upper)),
            right_of(full),
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


def test_conformal_bars_are_the_numbers_and_absent_classes_are_left_out(full):
    for score, drawn in (("1 - Pl", plot_conformal(full)), ("APS", plot_conformal(full, "APS"))):
        coverage, size = axes_of(drawn)
        rows = [row for row in full["conformal"]["rows"] if row["score"] == score]
        assert rows[0]["class_coverage"][4] is None
        for k, row in enumerate(rows):
            for axes, key in ((coverage, "class_coverage"), (size, "class_size")):
                heights = [bar.get_height() for bar in axes.containers[k]]
                assert heights == pytest.approx([value for value in row[key] if value is not None])
        assert list(coverage.lines[0].get_ydata()) == pytest.approx([0.95, 0.95])
        assert len(size.get_xticklabels()) == 4
        assert [bars[0].get_hatch() or "" for bars in coverage.containers] == ["", "////"]


def test_of_many_classes_those_of_the_lowest_coverage_are_shown(full):
    values = [None, *np.random.default_rng(0).permutation(100)[:98] / 100, None]
    rows = [
        {"score": "1 - BetP", "by_class": by_class, "class_coverage": values, "class_size": values}
        for by_class in (False, True)
    ]
    numbers = full.numbers | {
        "classes": [f"number {i}" for i in range(100)],
        "conformal": {"alpha": 0.1, "rows": rows},
    }
    figure = plot_conformal(dataclasses.replace(full, numbers=numbers))
    heights = [bar.get_height() for bar in axes_of(figure)[0].containers[0]]
    assert heights == sorted(value for value in values if value is not None)[:40]
    first = values.index(heights[0])
    assert axes_of(figure)[1].get_xticklabels()[0].get_text() == f"number {first}"
    assert "the 40 of 98 classes" in figure.get_suptitle()


def test_levels_show_the_numbers_in_order(full):
    figure = plot_levels(full, "noise")
    clean, half, fifth = full["noise"]
    for axes, name in zip(axes_of(figure), ("accuracy", "entropy", "credal width"), strict=True):
        assert list(axes.lines[0].get_xdata()) == [0, 0.2, 0.5]
        assert list(axes.lines[0].get_ydata()) == [clean[name], fifth[name], half[name]]
    figure = plot_levels(full, "rotation")
    for axes, name in zip(axes_of(figure), ("accuracy", "entropy", "credal width"), strict=True):
        assert [bar.get_height() for bar in axes.containers[0]] == [row[name] for row in full["rotation"]]
    labels = [text.get_text() for text in axes_of(figure)[-1].get_xticklabels()]
    assert labels == ["none", "−60° to 0°", "0° to 60°"]
    assert axes_of(figure)[1].get_ylabel() == "mean entropy, bits"


@pytest.mark.slow
def test_everything_is_drawn_and_what_is_missing_is_left_out(full, plain, tmp_path, monkeypatch):
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


def test_a_loaded_evaluation_gives_the_same_picture(full, tmp_path):
    full.save(tmp_path)
    again = Evaluation.load(tmp_path)
    lines = [axes_of(plot_detection(result))[0].lines[1].get_ydata() for result in (full, again)]
    assert np.array_equal(*lines)
    assert axes_of(plot_conformal(again))[0].containers[0][0].get_height() == pytest.approx(
        full["conformal"]["rows"][0]["class_coverage"][0]
    )


def test_figures_of_one_part_can_be_drawn_into_given_axes(full):
    figure = matplotlib.figure.Figure()
    left, right = figure.subplots(1, 2)
    assert plot_intervals(full, ax=left) is figure
    assert plot_widths_by_class(full, ax=right) is figure
    assert left.get_title() == "100 of 300 test inputs"
    assert right.get_ylabel() == "credal width"


def test_what_is_not_there_is_said(full, plain):
    for plot, message in (
        (plot_detection, r"no unknown data\. Measure it first: evaluate with ood="),
        (plot_conformal, r"no conformal sets\. Measure it first: evaluate with validation="),
        (plot_widths_by_class, "no such score; got credal width; expected one of entropy, 1 - maximum"),
        (plot_intervals, "no intervals; expected lower and upper"),
        (
            lambda result: plot_levels(result, "noise"),
            r"no noise\. .*noise=randomset\.evaluation\.sweeps\.NOISE",
        ),
        (
            lambda result: plot_levels(result, "fog"),  # type: ignore[arg-type]
            'no such change of images; got fog; expected "noise" or',
        ),
        (lambda result: plot_densities(result, "luck"), "got luck; expected one of entropy"),
    ):
        with pytest.raises(RandomSetError, match=message):
            plot(plain)
    with pytest.raises(RandomSetError, match="by this score; got luck; expected one of 1 - Pl, 1 - Bel"):
        plot_conformal(full, "luck")
    with pytest.raises(RandomSetError, match="got 0; expected one sample or more"):
        plot_intervals(full, samples=0)


def test_without_matplotlib_the_extra_is_named(full, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (plot_reliability, plot_detection, plot_intervals, plot_conformal):
        with pytest.raises(MissingPackageError, match=r"pip install 'randomset\[plot\]'"):
            plot(full)
