"""Reports, warnings and tables of a fitted budgeter."""

import warnings

import numpy as np
import pytest

from randomset import Budget, Budgeter
from randomset.errors import RandomSetWarning
from tests.budgeting.conftest import clusters


def test_growth_is_recorded_in_report_and_budget():
    x, y = clusters(4, apart=30)
    budgeter = Budgeter(6).fit(x, y)
    assert budgeter.budget_.num_sets == 6
    assert budgeter.coverages_.min() > 0.95
    assert sum(budgeter.report_.growth.values()) == 6
    assert "grown beyond 95 %" in str(budgeter.report_)
    again = Budget.from_json(budgeter.budget_.to_json())
    assert again.origin["coverages"] == budgeter.coverages_.tolist()
    assert again.origin["coverage"] == 0.95


def test_absent_classes_are_singletons_with_a_warning():
    x, y = clusters(3)
    with pytest.warns(RandomSetWarning, match="class ghost: no samples"):
        budgeter = Budgeter(3, classes=["a", "b", "c", "ghost"]).fit(x, y)
    assert all("ghost" not in focal for focal in budgeter.budget_ if len(focal) > 1)
    assert ("ghost",) in set(budgeter.budget_)


def test_sets_are_limited_to_classes_with_samples():
    x, y = clusters(2)
    with pytest.warns(RandomSetWarning) as told:
        assert Budgeter(3, classes=list("abc")).fit(x, y).budget_.num_sets == 1
    assert "only 1 of 3 sets of classes with samples exist" in [str(note.message) for note in told]


def test_many_dimensions_give_a_warning():
    x, y = clusters(3, features=12)
    with pytest.warns(RandomSetWarning, match="in 12 dimensions .* overlaps vanish"):
        Budgeter(2, reducer=None).fit(x, y)


def test_clean_fit_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Budgeter(5).fit(*clusters())


def test_tables_as_text_and_data_frame():
    budgeter = Budgeter(4, classes=list("abcde")).fit(*clusters())
    frame = budgeter.to_frame()
    assert frame["overlap"].tolist() == budgeter.ranking_.overlaps.tolist()
    assert frame["set"][0].startswith("{")
    lines = budgeter.table(2).splitlines()
    assert len(lines) == 4
    assert frame["set"][0] in lines[1]
    assert lines[-1] == "and 2 more"


def test_sample_sizes_are_reported():
    draw = np.random.default_rng(0)
    y = np.arange(4000) % 40
    budgeter = Budgeter(3, reducer="lda", max_samples=1000).fit(draw.normal(size=(4000, 8)) + y[:, None], y)
    assert (budgeter.report_.samples, budgeter.report_.used) == (4000, 1000)
    assert np.bincount(budgeter.labels_).min() >= 20
