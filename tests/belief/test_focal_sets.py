"""Lookups in a family of focal sets."""

import pytest
from hypothesis import given

from randomset import Budget
from randomset.errors import BudgetError
from tests.strategies import budgets

ANIMALS = ["cat", "dog", "fox", "car"]


@given(budgets())
def test_downward_closure_against_the_definition(budget):
    family = {frozenset(s) for s in budget.sets}
    literal = all(
        frozenset(c for c in focal if code >> c & 1) in family
        for focal in family
        for code in range(2**budget.num_classes)
        if any(code >> c & 1 for c in focal)
    )
    assert budget.is_downward_closed == literal


def test_mask_and_index():
    budget = Budget.from_sets([{0, 1}], ANIMALS)
    assert budget.mask_from_sets([["car"], {0, 2}]).tolist() == [[0, 0, 0, 1], [1, 0, 1, 0]]
    assert budget.index(["dog", "cat"]) == 4
    assert {"fox"} in budget
    assert {"fox", "zebra"} not in budget
    with pytest.raises(BudgetError, match=r"not in the budget; got \{dog, fox\}"):
        budget.index({"dog", "fox"})
