"""The worked example of Section 2 as a batch of two predictions."""

import pytest
import torch

from randomset import Budget, RandomSet


@pytest.fixture
def answer():
    budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    return RandomSet.from_mass(torch.tensor([[0.5, 0.0, 0.1, 0.4], [0.0, 0.0, 1.0, 0.0]]), budget)
