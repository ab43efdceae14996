"""The drift test: level and power."""

import numpy as np
import pytest

from randomset import Budgeter
from randomset.budgeting.drift import drift_p_values, level_of_look, moments
from randomset.budgeting.gaussians import ClassGaussians
from tests.budgeting.conftest import batch


def moment_statistics(points, labels=None):
    """Return statistics of the moments of points, without standardisation."""
    d = points.shape[1]
    labels = np.zeros(len(points), int) if labels is None else labels
    return ClassGaussians.from_points(moments(points, np.zeros(d), np.ones(d)), labels, int(labels.max()) + 1)


@pytest.mark.parametrize("kind", ["normal", "exponential", "uniform"])
@pytest.mark.parametrize("dimensions", [1, 3, 8])
def test_p_values_are_uniform_without_drift(dimensions, kind):
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(200), 400)

    def points():
        size = (len(labels), dimensions)
        mixed = getattr(draw, kind)(size=size)
        return mixed + 0.5 * mixed[:, :1]

    p = drift_p_values(moment_statistics(points(), labels), moment_statistics(points(), labels))
    for share in (0.05, 0.25, 0.5):
        assert (p < share).mean() == pytest.approx(share, abs=0.09)


@pytest.mark.parametrize("change", ["move", "grow", "turn"])
def test_each_kind_of_drift_is_detected(change):
    draw = np.random.default_rng(0)
    before = draw.normal(size=(300, 2)) * [2, 1]
    after = draw.normal(size=(300, 2)) * [2, 1]
    after = {"move": after + 0.6, "grow": after * 1.4, "turn": after[:, ::-1]}[change]
    assert drift_p_values(moment_statistics(before), moment_statistics(after))[0] < 1e-4


def test_too_few_points_are_not_tested():
    few = moment_statistics(np.random.default_rng(0).normal(size=(8 * 5 - 1, 2)))
    assert drift_p_values(few, few).tolist() == [1.0]


def test_degenerate_clusters_can_be_tested():
    flat = moment_statistics(np.ones((50, 2)))
    assert drift_p_values(flat, flat).tolist() == [1.0]


@pytest.mark.slow
def test_false_alarm_rate_over_all_looks():
    """On a stream without drift, recomputations are about as rare as the nominal level."""
    alarms = 0
    for seed in range(20):
        budgeter = Budgeter(4, reducer=None, drift_level=0.05).fit(*batch(1000 + seed))
        for step in range(10):
            budgeter.partial_fit(*batch(10_000 + 100 * seed + step, 480))
        alarms += bool(budgeter.changes_)
    assert alarms <= 3  # expected: at most 1 of 20
    assert level_of_look(0.05, 1, 1) > level_of_look(0.05, 2, 1)
