import itertools

import pytest
import torch
from hypothesis import given

from randomset import Budget
from randomset.belief import credal
from randomset.belief.credal import (
    can_be_distributed,
    credal_vertices,
    expectation_bounds,
    is_in_credal_set,
    lower_from_mass,
    set_bounds,
    upper_from_mass,
)
from randomset.belief.measures import pignistic_from_mass
from randomset.errors import LabelError, RandomSetError, ShapeError
from tests import oracles
from tests.strategies import budgets, random_budget, random_mass, seeds


@given(budgets(max_classes=5), seeds)
def test_bounds_are_the_extremes_of_the_vertices(budget, seed):
    n = budget.num_classes
    mass = random_mass(budget, 2, seed=seed, sparse=True)
    found = [oracles.vertices(oracles.mass_function(m, budget), n) for m in mass]
    corners = torch.tensor(found, dtype=torch.float64)
    torch.testing.assert_close(credal_vertices(mass, budget), corners)
    torch.testing.assert_close(lower_from_mass(mass, budget), corners.amin(1))
    torch.testing.assert_close(upper_from_mass(mass, budget), corners.amax(1))
    cost = torch.rand(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    lower, upper = expectation_bounds(cost, mass, budget)
    expected = corners @ cost.T
    torch.testing.assert_close(lower, expected.amin(1))
    torch.testing.assert_close(upper, expected.amax(1))
    low, high = set_bounds(mass, budget, [set(s) for s in oracles.all_sets(n)])
    chances = torch.stack([corners[..., list(s)].sum(-1) for s in oracles.all_sets(n)], -1)
    torch.testing.assert_close(low, chances.amin(1))
    torch.testing.assert_close(high, chances.amax(1))


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 7])
def test_bounds_and_vertices_on_larger_power_sets(n):
    budget = Budget.powerset(n)
    mass = random_mass(budget, seed=n, sparse=True)
    corners = torch.tensor(oracles.vertices(oracles.mass_function(mass, budget), n), dtype=torch.float64)
    torch.testing.assert_close(credal_vertices(mass, budget), corners)
    torch.testing.assert_close(lower_from_mass(mass, budget), corners.amin(0))
    torch.testing.assert_close(upper_from_mass(mass, budget), corners.amax(0))
    assert credal_vertices(random_mass(Budget.powerset(8)), Budget.powerset(8)).shape == (40320, 8)


@given(budgets(max_classes=7), seeds)
def test_lower_pignistic_upper(budget, seed):
    mass = random_mass(budget, 4, seed=seed)
    lower, upper = lower_from_mass(mass, budget), upper_from_mass(mass, budget)
    central = pignistic_from_mass(mass, budget)
    assert (lower <= central + 1e-12).all()
    assert (central <= upper + 1e-12).all()
    assert is_in_credal_set(central, mass, budget).all()


@given(budgets(max_classes=5), seeds)
def test_membership_by_its_definition_and_by_flow(budget, seed):
    n = budget.num_classes
    mass = random_mass(budget, 8, seed=seed, sparse=True)
    generator = torch.Generator().manual_seed(seed)
    p = random_mass(Budget.singletons(n), 8, seed=seed + 1)
    mix = torch.rand(8, 1, generator=generator, dtype=torch.float64)
    p = mix * p + (1 - mix) * pignistic_from_mass(mass, budget)  # some inside, some outside
    literal = [
        all(
            oracles.belief(oracles.mass_function(m, budget), a) <= sum(row[c] for c in a) + 1e-5
            for a in oracles.all_sets(n)
        )
        for m, row in zip(mass, p.tolist(), strict=True)
    ]
    assert is_in_credal_set(p, mass, budget).tolist() == literal
    enumerated = credal.MAX_ENUMERATED_CLASSES
    try:
        credal.MAX_ENUMERATED_CLASSES = 0
        assert is_in_credal_set(p, mass, budget).tolist() == literal
    finally:
        credal.MAX_ENUMERATED_CLASSES = enumerated


def test_many_classes():
    budget = random_budget(200, 400, seed=2, max_size=5)
    mass = random_mass(budget, 3, sparse=True)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0)).tolist()
    rank = {c: i for i, c in enumerate(order)}
    vertex = torch.zeros(3, 200, dtype=torch.float64)
    for k, focal in enumerate(budget.sets):  # each set gives all to its first class
        vertex[:, min(focal, key=rank.__getitem__)] += mass[:, k]
    assert is_in_credal_set(vertex, mass, budget).all()
    central = pignistic_from_mass(mass, budget)
    assert is_in_credal_set(0.5 * vertex + 0.5 * central, mass, budget).all()
    assert not is_in_credal_set(central + 1.01 * (vertex - central), mass, budget).any()


def test_on_all_sets_not_only_on_focal_ones():
    # P = (0.3, 0.3, 0.4) dominates every focal set's belief, yet P({a, b}) = 0.6 < Bel({a, b}) = 0.7.
    budget = Budget.from_sets([{0, 1, 2}], "abc")
    mass = torch.tensor([0.3, 0.3, 0.1, 0.3])
    assert is_in_credal_set(torch.tensor([0.3, 0.3, 0.4]), mass, budget).item()
    budget = Budget.from_sets([{0, 1}, {1, 2}], "abc")
    mass = torch.tensor([0.1, 0.0, 0.0, 0.45, 0.45])
    inside, outside = torch.tensor([0.3, 0.5, 0.2]), torch.tensor([0.1, 0.1, 0.8])
    assert is_in_credal_set(torch.stack([inside, outside]), mass, budget).tolist() == [True, False]


def test_invalid_distributions_are_outside():
    budget = Budget.singletons(3).with_universal_set()
    vacuous = torch.tensor([0.0, 0.0, 0.0, 1.0])
    p = torch.tensor([[0.2, 0.3, 0.5], [0.2, 0.3, 0.6], [-0.1, 0.6, 0.5]])
    assert is_in_credal_set(p, vacuous, budget).tolist() == [True, False, False]


def test_one_distribution_against_many_samples():
    budget = Budget.from_sets([{0, 1}], 3)
    mass = torch.tensor([[0.5, 0.0, 0.1, 0.4], [0.0, 0.0, 1.0, 0.0]])
    assert is_in_credal_set(torch.tensor([0.6, 0.3, 0.1]), mass, budget).tolist() == [True, False]


def test_hand_worked_expected_costs():
    budget = Budget.from_sets([{0, 1}], 3)
    mass = torch.tensor([0.5, 0.0, 0.1, 0.4], dtype=torch.float64)
    lower, upper = expectation_bounds(torch.tensor([1.0, 5.0, 10.0]), mass, budget)
    assert lower.item() == pytest.approx(0.5 * 1 + 0.1 * 10 + 0.4 * 1)
    assert upper.item() == pytest.approx(0.5 * 1 + 0.1 * 10 + 0.4 * 5)


def test_gradients():
    budget = Budget.from_sets([{0, 1}, {0, 1, 2}], 4)
    mass = random_mass(budget, 2).requires_grad_()
    cost = torch.rand(3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, c: expectation_bounds(c, m, budget), (mass, cost))
    assert torch.autograd.gradcheck(lambda m: set_bounds(m, budget, [{0, 2}]), (mass,))
    assert torch.autograd.gradcheck(lambda m: credal_vertices(m, budget), (mass,), fast_mode=True)


def test_invalid_input():
    budget = Budget.singletons(9)
    mass = random_mass(budget)
    with pytest.raises(RandomSetError, match=r"9 classes, which have 9! permutations; expected at most 8"):
        credal_vertices(mass, budget)
    with pytest.raises(ShapeError, match=r"torch.float32 \(2, 9\); expected torch.bool"):
        set_bounds(mass, budget, torch.zeros(2, 9))
    with pytest.raises(LabelError, match="unknown class name; got x"):
        set_bounds(mass, budget, [{"x"}])
    with pytest.raises(ShapeError, match=r"the costs have the wrong shape; got \(4,\)"):
        expectation_bounds(torch.zeros(4), mass, budget)
    with pytest.raises(ShapeError, match=r"the probabilities have the wrong shape; got \(2,\)"):
        is_in_credal_set(torch.zeros(2), mass, budget)


def test_order_of_the_vertices():
    budget = Budget.powerset(3)
    mass = random_mass(budget)
    corners = credal_vertices(mass, budget)
    assert corners.shape == (6, 3)
    for corner, order in zip(corners, itertools.permutations(range(3)), strict=True):
        assert corner[order[0]].item() == pytest.approx(upper_from_mass(mass, budget)[order[0]].item())


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
