"""Checks of features and of the requested number of sets."""

import numpy as np
import pytest

from randomset import Budgeter
from randomset.errors import BudgetError, RandomSetError
from tests.budgeting.conftest import clusters


def test_more_sets_than_exist():
    x, y = clusters(4)
    with pytest.raises(BudgetError, match=r"exceeds the number of sets that exist; got 12 .* = 11"):
        Budgeter(12).fit(x, y)


def test_constant_features():
    with pytest.raises(RandomSetError, match="constant: all samples are identical"):
        Budgeter(1).fit(np.ones((20, 3)), np.arange(20) % 2)
