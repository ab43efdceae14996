"""Labels and class names as users give them."""

import numpy as np
import pytest
import torch

from randomset._core.labels import checked_classes, encoded_labels
from randomset.errors import BudgetError, LabelError


@pytest.mark.parametrize(
    ("labels", "classes", "codes", "names"),
    [
        ([2, 0, 1], None, [2, 0, 1], ("0", "1", "2")),
        (torch.tensor([1, 0, 1]), ["no", "yes"], [1, 0, 1], ("no", "yes")),
        (np.array([1.0, 0.0, 1.0]), 3, [1, 0, 1], ("0", "1", "2")),
        (np.array([0, 1, 1], dtype=object), None, [0, 1, 1], ("0", "1")),
        (np.array([b"a", b"b", b"a"]), None, [0, 1, 0], ("a", "b")),
        (["b", "a", "b"], np.array(["b", "a"]), [0, 1, 0], ("b", "a")),
        (["3", "5", "3"], np.array([5, 3]), [1, 0, 1], ("5", "3")),
    ],
)
def test_encoding(labels, classes, codes, names):
    result, result_names = encoded_labels(labels, 3, classes)
    assert result.tolist() == codes
    assert result_names == names


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (None, None, "missing labels"),
        ([0, 1], None, r"do not match the features; got labels of shape \(2,\) for 3 samples"),
        (["a", "b", "fox"], ["a", "b"], "unknown label; got fox; expected one of a, b"),
        ([0, 1, 7], ["a", "b"], "out of range; got 7; expected 0 to 1 for 2 classes"),
        ([0, 1, -1], None, "a label is negative; got -1"),
        ([0, 1, 99], None, "labels have gaps; got 3 distinct labels up to 99"),
        ([0, 1, 0.5], None, "must be integers or names"),
        ([0, 1, float("inf")], None, "out of range"),
        (np.array(["a", None, "b"], dtype=object), None, "must be a string or an integer; got None"),
        (np.array([b"a", b"\xff", b"b"], dtype=object), None, "not valid UTF-8"),
        ([1, 1, 1], None, "one class only; got class 1 for all 3 samples"),
    ],
)
def test_invalid_labels(labels, classes, message):
    with pytest.raises(LabelError, match=message):
        encoded_labels(labels, 3, classes)


def test_one_class_is_accepted_on_request():
    assert encoded_labels([1, 1, 1], 3, at_least=1)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"a", "b"}, "unordered; got set"),
        (2.5, "must be names or their number; got 2.5"),
        (["a", 3], "must be a string; got 3"),
        (["a", "a"], "duplicate class name; got a"),
        (1, "too few classes"),
        (["a", "\ud800"], "not valid Unicode"),
    ],
)
def test_invalid_classes(classes, message):
    with pytest.raises(BudgetError, match=message):
        checked_classes(classes)
