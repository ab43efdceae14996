"""Sparse sums against the literal definitions."""

import pytest
import torch

from randomset import belief_from_mass, mass_from_belief, plausibility_from_mass
from randomset.belief.poset import Pairs
from randomset.belief.sparse_sum import SparseSum
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
