"""The number of sets: checks, and the knee of the overlap curve."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randomset import Budgeter
from randomset.budgeting import knee
from randomset.errors import BudgetError, RandomSetError
from tests.budgeting.conftest import clusters


def test_more_sets_than_exist():
    x, y = clusters(4)
    with pytest.raises(BudgetError, match=r"exceeds the number of sets that exist; got 12 .* = 11"):
        Budgeter(12).fit(x, y)


def test_constant_features():
    with pytest.raises(RandomSetError, match="constant: all samples are identical"):
        Budgeter(1).fit(np.ones((20, 3)), np.arange(20) % 2)


def test_cliff():
    assert knee([0.5, 0.48, 0.46, 0.05, 0.04, 0.03, 0.02]) == 4


@given(half=st.integers(3, 20))
def test_exponential_decay(half):
    assert knee(0.5 ** (np.arange(20 * half) / half)) == pytest.approx(2.2 * half, abs=2)


@given(scale=st.floats(1e-6, 1), tail=st.integers(0, 50))
def test_scale_and_negligible_sets_do_not_matter(scale, tail):
    curve = 0.7 ** np.arange(12)
    assert knee(scale * np.r_[curve, np.full(tail, 1e-4)]) == knee(curve)


def test_short_and_straight_curves_are_kept_entirely():
    assert [knee([]), knee([0.2]), knee([0.2, 0.1]), knee([0.2, 0.2, 0.2]), knee([4, 3, 2, 1])] == [
        0,
        1,
        2,
        3,
        4,
    ]
