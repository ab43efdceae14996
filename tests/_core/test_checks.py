"""Argument checks."""

import numpy as np
import pytest
import torch

from randomset._core.checks import checked_features, is_number, is_whole
from randomset.errors import ShapeError


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
