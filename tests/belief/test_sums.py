"""Sums over sets against the literal definitions, whole and in blocks."""

import itertools
import warnings

import pytest
import torch

from randomset import Budget
from randomset.belief import sums
from randomset.belief.measures import pignistic_from_mass
from randomset.belief.sums import (
    Pairs,
    SparseSum,
    intersection_pairs,
    moebius_pairs,
    over_sets,
    over_sets_each,
    product_over_sets,
    subset_pairs,
)
from randomset.belief.transforms import belief_from_mass, mass_from_belief, plausibility_from_mass
from tests import oracles
from tests.strategies import random_budget, random_mass


@pytest.mark.slow
def test_a_thousand_classes():
    budget = random_budget(1000, 3000, max_size=4)
    mass = random_mass(budget, 5)
    belief = belief_from_mass(mass, budget)
    torch.testing.assert_close(mass_from_belief(belief, budget), mass)
    sets = [frozenset(s) for s in budget.sets]
    m = oracles.mass_function(mass[0], budget)
    for k in range(1000, 4000, 250):
        assert belief[0, k].item() == pytest.approx(oracles.belief(m, sets[k]))
        assert plausibility_from_mass(mass, budget)[0, k].item() == pytest.approx(
            oracles.plausibility(m, sets[k])
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_product_and_gradients_of_a_dense_matrix(dtype):
    row, column = torch.tensor([2, 0, 0, 2]), torch.tensor([1, 0, 3, 2])
    value, divisor = torch.tensor([3, -1, 2, 5]), torch.tensor([1, 2, 4, 1])
    dense = torch.zeros(4, 4, dtype=dtype).index_put((row, column), (value / divisor).to(dtype))
    sums = SparseSum(Pairs(row, column, value), num_rows=4, divisor=divisor)
    x = torch.rand(4, 7, dtype=dtype, requires_grad=True)
    torch.testing.assert_close(sums(x), dense @ x)
    (gradient,) = torch.autograd.grad(sums(x).sum(), x)
    torch.testing.assert_close(gradient, dense.sum(0)[:, None].expand(4, 7))
    if dtype == torch.float64:
        torch.autograd.gradgradcheck(sums, x)


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


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,)])
def test_batches_of_any_shape(shape):
    x = torch.rand(*shape, 4)
    torch.testing.assert_close(over_sets(lambda columns: columns.cumsum(0), x), x.cumsum(-1))
    matrix = torch.rand(3, 4)
    torch.testing.assert_close(product_over_sets(matrix, x), x @ matrix.T)


@pytest.mark.parametrize("sigmoid", [False, True])
def test_blocks_give_the_same_results(monkeypatch, sigmoid):
    x, widths = torch.randn(50, 6), []

    def function(columns):
        widths.append(columns.shape[1])
        return columns * 2, columns.sum(0, keepdim=True)

    monkeypatch.setattr(sums, "_BLOCK", 6 * 16)
    double, total = over_sets_each(function, x, sigmoid=sigmoid)
    assert widths == [16, 16, 16, 2]
    expected = x.sigmoid() if sigmoid else x
    torch.testing.assert_close(double, expected * 2)
    torch.testing.assert_close(total, expected.sum(-1, keepdim=True))


def test_batches_stay_whole_under_autograd(monkeypatch):
    monkeypatch.setattr(sums, "_BLOCK", 1)
    x = torch.rand(50, 6, requires_grad=True)
    over_sets(lambda columns: columns**2, x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


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
