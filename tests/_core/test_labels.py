"""Labels, class names and stratified splits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from randomset._core.labels import checked_classes, encoded_labels, stratified_parts
from randomset.errors import BudgetError, LabelError, RandomSetError
from tests.strategies import seeds


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


@given(st.lists(st.integers(0, 4), min_size=10, max_size=80), seeds)
def test_parts_are_disjoint_and_stratified(labels, seed):
    parts = stratified_parts(labels, [0.25, 0.1], seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert [len(part) for part in parts[1:]] == [round(0.25 * len(labels)), round(0.1 * len(labels))]
    for label in set(labels):
        count = labels.count(label)
        for part, share in zip(parts[1:], (0.25, 0.1), strict=True):
            assert abs(sum(labels[i] == label for i in part) - share * count) <= 2


def test_numbers_of_samples_and_seeds():
    labels = np.arange(100) % 5
    rest, part = stratified_parts(labels, [20], seed=1)
    assert np.bincount(labels[part]).tolist() == [4] * 5
    assert len(rest) == 80
    assert np.array_equal(part, stratified_parts(labels, [20], seed=1)[1])
    assert not np.array_equal(part, stratified_parts(labels, [20], seed=2)[1])


@pytest.mark.parametrize("shares", [[0.5, 0.5], [-0.1], [1.0], [10], [0.5, 5]])
def test_shares_that_leave_no_samples(shares):
    with pytest.raises(RandomSetError, match=r"leave no samples; got .* of 10 samples"):
        stratified_parts([0, 1] * 5, shares)
