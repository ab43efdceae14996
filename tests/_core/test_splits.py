"""Stratified splits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randomset._core.splits import stratified_parts
from randomset.errors import RandomSetError
from tests.strategies import seeds


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
