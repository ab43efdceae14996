"""The fast transform over the power set."""

import warnings

import pytest
import torch

from randomset import Budget, belief_from_mass, mass_from_belief
from randomset.belief.measures import pignistic_from_mass
from tests import oracles
from tests.strategies import random_mass


@pytest.mark.parametrize("theta", [True, False], ids=["with Θ", "without"])
@pytest.mark.parametrize("n", [2, 5, 10, 12, 13])
def test_pignistic_probability_of_a_power_set(n, theta):
    budget = Budget.powerset(n, universal_set=theta)
    mass = random_mass(budget, 3, seed=n)
    dense = budget.operators_on(mass.device).dense_shares(mass)
    assert (dense is not None) == (n <= 12)
    literal = [oracles.pignistic(oracles.mass_function(m, budget), n) for m in mass]
    expected = torch.tensor(literal, dtype=torch.float64)
    for layout in (mass, mass.T.contiguous().T):  # samples first in memory, and sets first
        torch.testing.assert_close(pignistic_from_mass(layout, budget), expected, atol=1e-14, rtol=0)
        torch.testing.assert_close(
            pignistic_from_mass(layout.float(), budget).double(), expected, atol=1e-6, rtol=0
        )


@pytest.mark.slow
def test_round_trip_with_16_classes():
    budget = Budget.powerset(16)
    mass = random_mass(budget, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        belief = belief_from_mass(mass, budget)
    assert belief[:, -1].tolist() == pytest.approx([1, 1])
    torch.testing.assert_close(mass_from_belief(belief, budget), mass, atol=1e-12, rtol=0)
