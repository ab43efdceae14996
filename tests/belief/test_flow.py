"""The maximum flow against Hall's condition on every set."""

import torch
from hypothesis import given

from randomset import Budget
from randomset.belief.flow import can_be_distributed
from tests import oracles
from tests.strategies import budgets, random_mass, seeds


@given(budgets(max_classes=5), seeds)
def test_agreement_with_the_definition(budget, seed):
    n = budget.num_classes
    mass, p = random_mass(budget, seed=seed, sparse=True), random_mass(Budget.singletons(n), seed=seed + 1)
    difference = torch.cat((mass[:n] - p, mass[n:])).tolist()
    m = oracles.mass_function(mass, budget)
    literal = all(oracles.belief(m, a) <= sum(p[c].item() for c in a) + 1e-9 for a in oracles.all_sets(n))
    assert can_be_distributed(difference, budget.sets, n, 1e-9) == literal


@given(budgets(max_classes=6), seeds)
def test_any_distribution_of_the_masses_is_feasible(budget, seed):
    n = budget.num_classes
    mass = random_mass(budget, seed=seed, sparse=True)
    generator = torch.Generator().manual_seed(seed)
    p = torch.zeros(n, dtype=torch.float64)
    for focal, m in zip(budget.sets, mass, strict=True):
        shares = torch.rand(len(focal), generator=generator, dtype=torch.float64) + 1e-3
        p[list(focal)] += m * shares / shares.sum()
    difference = torch.cat((mass[:n] - p, mass[n:])).tolist()
    assert can_be_distributed(difference, budget.sets, n, 1e-9)


def test_flow_is_rerouted():
    """{0, 1} must give class 0 back to {0, 2}, which is filled later."""
    sets = [(0,), (1,), (2,), (0, 1), (0, 2)]
    assert can_be_distributed([-0.5, -0.5, 0.0, 0.5, 0.5], sets, 3, 1e-9)
    assert not can_be_distributed([-0.5, 0.0, -0.5, 0.7, 0.3], sets, 3, 1e-9)
