"""Figures of detection, score distributions, conformal sets, noise and rotation."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.metrics import auc

from randomset.errors import RandomSetError
from randomset.evaluation import Evaluation, evaluate
from randomset.report.axes import shortened
from randomset.report.detection_figures import (
    draw_comparison,
    plot_conformal,
    plot_curves,
    plot_densities,
    plot_detection,
    plot_entropies,
    plot_levels,
)
from tests.report.conftest import axes_of, correct_of, legend_of


@pytest.mark.parametrize("score", ["entropy", "credal width", "rank average"])
def test_areas_under_the_curves_match_the_stored_values(full, score):
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


def test_densities_count_every_input_once_in_shared_bins(full):
    predictions, sets = axes_of(plot_densities(full, "credal width"))
    correct = correct_of(full)
    known = full.predictions["test"].scores["credal width"].numpy()
    flat = full.predictions["flat"].scores["credal width"].numpy()
    for part, values in zip(
        [*predictions.patches, sets.patches[1]], [known[correct], known[~correct], flat], strict=True
    ):
        share, edges, _ = part.get_data()
        assert np.nansum(share) == pytest.approx(100)
        assert np.nan_to_num(share) == pytest.approx(100 * np.histogram(values, edges)[0] / len(values))
        assert edges == pytest.approx(sets.patches[0].get_data().edges)
    assert legend_of(sets) == ["test data (300)", "unknown: flat (90)", "unknown: bright (40)"]
    assert predictions.get_yscale() == "log"
    assert axes_of(plot_densities(full))[0].get_xlabel() == "entropy, bits"


def test_densities_of_equal_scores_and_similar_names():
    names = ["a long name that ends with the number " + digit for digit in "12"]
    sure = lambda rows: torch.eye(2)[torch.zeros(len(rows), dtype=torch.long)]  # noqa: E731
    data = torch.rand(4, 2), torch.zeros(4, dtype=torch.long)
    result = evaluate(sure, data, {name: torch.rand(i + 1, 2) for i, name in enumerate(names)})
    predictions, sets = axes_of(plot_densities(result))
    assert predictions.patches[0].get_data().values.max() == 100
    assert legend_of(predictions) == ["correct (4)", "wrong (0)"]
    assert legend_of(sets)[1:] == [f"unknown: {shortened(name)} ({n})" for n, name in enumerate(names, 1)]


def test_conformal_bars_match_the_stored_values_and_omit_absent_classes(full):
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


def test_conformal_bars_of_many_classes_show_the_lowest_coverage(full):
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


def test_levels_are_plotted_in_order(full):
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


def test_a_loaded_evaluation_gives_the_same_figures(full, tmp_path):
    full.save(tmp_path)
    again = Evaluation.load(tmp_path)
    lines = [axes_of(plot_detection(result))[0].lines[1].get_ydata() for result in (full, again)]
    assert np.array_equal(*lines)
    assert axes_of(plot_conformal(again))[0].containers[0][0].get_height() == pytest.approx(
        full["conformal"]["rows"][0]["class_coverage"][0]
    )


def test_missing_parts_raise_errors(full, plain):
    for plot, message in (
        (plot_detection, r"no unknown data\. Measure it first: evaluate with ood="),
        (plot_conformal, r"no conformal sets\. Measure it first: evaluate with validation="),
        (
            lambda result: plot_levels(result, "noise"),
            r"no noise\. .*noise=randomset\.evaluation\.robustness\.NOISE",
        ),
        (
            lambda result: plot_levels(result, "fog"),  # type: ignore[arg-type]
            'unknown change of images; got fog; expected "noise" or',
        ),
        (lambda result: plot_densities(result, "luck"), "unknown score; got luck; expected one of entropy"),
    ):
        with pytest.raises(RandomSetError, match=message):
            plot(plain)
    with pytest.raises(RandomSetError, match="for this score; got luck; expected one of 1 - Pl, 1 - Bel"):
        plot_conformal(full, "luck")


def test_every_method_has_a_curve_and_its_area(full):
    roc, _ = axes_of(plot_curves({"rsnn": full, "softmax": full}, "flat"))
    area = full["ood"]["flat"]["scores"]["entropy"]["auroc"]
    assert legend_of(roc) == [f"{area:.3f}  rsnn", f"{area:.3f}  softmax"]


def test_entropy_bars_are_the_means(full):
    (axes,) = axes_of(plot_entropies({"rsnn": full, "softmax": full}))
    assert legend_of(axes) == ["test data", "unknown: flat", "unknown: bright"]
    for name, bars in zip(("test", "flat", "bright"), axes.containers, strict=True):
        mean = full.predictions[name].scores["entropy"].double().mean().item()
        assert [bar.get_height() for bar in bars] == pytest.approx([mean] * 2)


@pytest.mark.slow
def test_draw_comparison_saves_one_figure_per_unknown_data_set(full, tmp_path):
    full.save(tmp_path / "run")
    paths = draw_comparison({"rsnn": tmp_path / "run"}, tmp_path / "figures")
    assert [path.name for path in paths] == ["curves_flat.png", "curves_bright.png", "entropies.png"]
    assert all(path.exists() for path in paths)
