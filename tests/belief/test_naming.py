"""Sets of classes as users write them."""

from typing import Any

import numpy as np
import pytest
import torch

from randomset import Budget
from randomset.belief.naming import braces
from randomset.errors import LabelError

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
