"""Argument checks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from randomset._core.checks import (
    checked_classes,
    checked_features,
    encoded_labels,
    is_number,
    is_whole,
    stratified,
    stratified_parts,
)
from randomset.errors import BudgetError, LabelError, RandomSetError, ShapeError
from tests.strategies import seeds


@pytest.mark.parametrize(
    ("value", "whole", "number"),
    [
        (1, True, True),
        (np.int8(1), True, True),
        (0, False, False),
        (1.5, False, True),
        (True, False, False),
        ("1", False, False),
        (float("nan"), False, False),
        (float("inf"), False, False),
        (10**400, True, False),
        (None, False, False),
    ],
)
def test_numbers(value, whole, number):
    assert is_whole(value, 1) is whole
    assert is_number(value, 1) is number


@pytest.mark.parametrize(
    ("features", "dtype"),
    [
        ([[1, 2]], np.float64),
        (np.ones((1, 2), np.uint8), np.float32),
        (np.ones((1, 2), np.float16), np.float32),
        (torch.ones(1, 2, dtype=torch.bfloat16), np.float32),
        (torch.ones(1, 2).to_sparse(), np.float32),
        (np.full((1, 2), 1e13, np.float32), np.float64),  # squares must not overflow
    ],
)
def test_dtypes_of_features(features, dtype):
    assert checked_features(features).dtype == dtype


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([["a"]], "must be numbers"),
        (np.ones((1, 2), complex), "must be numbers; got complex numbers"),
        (np.ones(3), r"must be a non-empty 2-D array; got shape \(3,\)"),
        (np.ones((2, 3, 4)), r"got shape \(2, 3, 4\).*Flatten images"),
        (np.ones((0, 3)), "non-empty"),
        (np.ones((2, 3)), "number of features has changed; got 3; expected 2 columns"),
        ([[1, np.inf], [np.nan, 1]], "2 NaN or infinite values, the first in row 0"),
    ],
)
def test_invalid_features(features, message):
    with pytest.raises(ShapeError, match=message):
        checked_features(features, width=2)


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
        ([1, 1, 1], None, "only one class; got class 1 for all 3 samples"),
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


def test_a_stratified_choice():
    labels = torch.tensor([0] * 90 + [1] * 6 + [2] * 4)
    chosen = labels[stratified(labels, 16)]
    assert chosen.bincount().tolist() == [6, 6, 4]
    assert torch.equal(stratified(labels, 100), torch.arange(100))
