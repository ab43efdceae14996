"""The Moebius function of a budget."""

import itertools

import torch

from randomset import Budget, belief_from_mass, mass_from_belief
from randomset.belief.poset import intersection_pairs, moebius_pairs, subset_pairs
from tests import oracles
from tests.strategies import random_budget, random_mass


def test_long_chain_and_large_coefficients():
    chain = Budget.from_sets([range(k) for k in range(2, 31)], 30)
    mass = random_mass(chain, 2)
    torch.testing.assert_close(mass_from_belief(belief_from_mass(mass, chain), chain), mass)
    n = 40  # all pairs and Θ: μ({c}, Θ) = n − 2
    pairs = Budget.from_sets([*itertools.combinations(range(n), 2), range(n)], n)
    belief = torch.zeros(len(pairs), dtype=torch.float64)
    belief[0] = 1
    assert mass_from_belief(belief, pairs)[-1].item() == n - 2


def test_inverse_of_the_subset_matrix():
    for seed in range(4):
        budget = random_budget(6, 12, seed=seed)
        pairs = moebius_pairs(budget, subset_pairs(budget, intersection_pairs(budget)))
        inverse = torch.zeros(len(budget), len(budget), dtype=torch.float64)
        inverse[pairs.row, pairs.column] = pairs.value.double()
        torch.testing.assert_close(inverse.inverse(), torch.tensor(oracles.subset_matrix(budget)))
