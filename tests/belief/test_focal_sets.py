"""Focal sets as users write them, and lookups in a family of them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from randomset import Budget
from randomset.belief.focal_sets import braces
from randomset.errors import BudgetError, LabelError
from tests.strategies import budgets

ANIMALS = ["cat", "dog", "fox", "car"]


def test_names_and_indices_in_any_collection():
    by_name = Budget.from_sets([{"cat", "dog"}], ANIMALS)
    kinds: list[Any] = [(0, 1), np.array([1, 0]), torch.tensor([0, 1]), iter(["dog", 0]), {0: "", 1: ""}]
    for members in kinds:
        assert Budget.from_sets([members], ANIMALS) == by_name


def test_repr_of_large_sets_is_short():
    assert len(repr(Budget.singletons(1000).with_universal_set())) < 100


def test_invalid_label_sets_raise_label_errors():
    with pytest.raises(LabelError, match="empty"):
        Budget.singletons(3).mask_from_sets([[]])
    with pytest.raises(LabelError, match="unknown class name; got cow"):
        Budget.singletons(ANIMALS).mask_from_sets([{"cow"}])


def test_braces():
    assert braces("abc") == "{a, b, c}"
    assert braces("abc", shorten=3) == "{a, b, c}"
    assert braces("abcd", shorten=2) == "{a, b, … 2 more}"


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
