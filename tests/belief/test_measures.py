import math

import pytest
import torch
from hypothesis import given
from scipy.optimize import minimize

from randomset import Budget, BudgetOperators
from randomset.belief import measures
from randomset.belief.measures import (
    discord,
    entropy,
    lower_entropy,
    most_entropic,
    nonspecificity,
    pignistic_from_mass,
    upper_entropy,
)
from randomset.errors import RandomSetError, ShapeError
from tests import oracles
from tests.strategies import budgets, random_budget, random_mass, seeds


def test_entropy_in_bits_and_nats():
    p = torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=torch.float64)
    assert entropy(p).item() == pytest.approx(1.5)
    assert entropy(p, base=math.e).item() == pytest.approx(1.5 * math.log(2))
    with pytest.raises(
        ShapeError, match=r"expected class probabilities; got a single number; expected \(…, N\)"
    ):
        entropy(torch.tensor(0.5))
    certain = entropy(torch.tensor([1.0, 0.0]))
    assert certain.item() == 0
    assert not certain.signbit().item()


@pytest.mark.parametrize("base", [1.0, 0.5, 0.0, -2.0, float("nan")])
def test_invalid_base(base):
    with pytest.raises(RandomSetError, match="the base of the logarithm is too small"):
        entropy(torch.tensor([0.5, 0.5]), base=base)


def test_lower_entropy_of_too_many_classes():
    with pytest.raises(RandomSetError, match=r"too many classes .*; got 9 classes; expected at most 8"):
        lower_entropy(torch.full((9,), 1 / 9), Budget.singletons(9))


def test_entropy_gradient_is_finite_at_certainty():
    p = torch.tensor([1.0, 0.0], requires_grad=True)
    entropy(p).backward()
    assert p.grad is not None
    assert p.grad.isfinite().all()


@given(budgets(max_classes=5), seeds)
def test_literal_definitions(budget, seed):
    mass = random_mass(budget, seed=seed, sparse=True)
    m = oracles.mass_function(mass, budget)
    assert nonspecificity(mass, budget).item() == pytest.approx(
        sum(v * math.log2(len(a)) for a, v in m.items()), abs=1e-12
    )
    klir = -sum(
        v * math.log2(sum(w * len(a & b) / len(b) for b, w in m.items())) for a, v in m.items() if v > 0
    )
    assert discord(mass, budget).item() == pytest.approx(klir, abs=1e-9)
    literal = oracles.entropy(oracles.pignistic(m, budget.num_classes))
    assert entropy(pignistic_from_mass(mass, budget)).item() == pytest.approx(literal, abs=1e-9)


def test_extreme_values():
    budget = Budget.powerset(8)
    vacuous = torch.zeros(255)
    vacuous[-1] = 1
    assert nonspecificity(vacuous, budget).item() == pytest.approx(3)
    assert discord(vacuous, budget).item() == pytest.approx(0)
    assert upper_entropy(vacuous, budget).item() == pytest.approx(3)
    assert lower_entropy(vacuous, budget).item() == pytest.approx(0)
    precise = torch.zeros(255)
    precise[:8] = 0.125
    assert nonspecificity(precise, budget).item() == 0
    for measure in (discord, upper_entropy, lower_entropy):
        assert measure(precise, budget).item() == pytest.approx(3)


@given(budgets(max_classes=5), seeds)
def test_entropy_bounds_hold_for_the_vertices_and_between_them(budget, seed):
    mass = random_mass(budget, seed=seed, sparse=True)
    corners = oracles.vertices(oracles.mass_function(mass, budget), budget.num_classes)
    lowest = min(oracles.entropy(v) for v in corners)
    assert lower_entropy(mass, budget).item() == pytest.approx(lowest, abs=1e-9)
    upper = upper_entropy(mass, budget).item()
    assert upper >= max(oracles.entropy(v) for v in corners) - 1e-9
    assert upper >= entropy(pignistic_from_mass(mass, budget)).item() - 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_upper_entropy_against_an_optimiser(seed):
    budget = random_budget(4, 5, seed=seed)
    mass = random_mass(budget, seed=seed)
    corners = torch.tensor(oracles.vertices(oracles.mass_function(mass, budget), 4)).numpy()
    start = [1 / len(corners)] * len(corners)
    best = minimize(
        lambda w: -oracles.entropy((w @ corners).tolist()),
        start,
        bounds=[(0, 1)] * len(corners),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert upper_entropy(mass, budget).item() == pytest.approx(-best.fun, abs=1e-5)


@given(budgets(min_classes=3, max_classes=7), seeds)
def test_exact_and_iterative_upper_entropy_agree(budget, seed):
    mass = random_mass(budget, 3, seed=seed)
    exact = most_entropic(mass, budget)
    assert exact.sum(-1).tolist() == pytest.approx([1] * 3)
    shared = measures._mirror_descent(mass.T.contiguous(), BudgetOperators(budget), 1e-6, 20_000).T
    torch.testing.assert_close(entropy(shared), entropy(exact), atol=1e-5, rtol=0)


def test_upper_entropy_is_independent_of_the_batch():
    budget = random_budget(15, 30, seed=3)
    mass = random_mass(budget, 6)
    alone = torch.stack([most_entropic(one, budget) for one in mass])
    torch.testing.assert_close(most_entropic(mass, budget), alone)


def test_upper_entropy_of_a_thousand_classes():
    budget = random_budget(1000, 3000, max_size=4).with_universal_set()
    mass = random_mass(budget, 2, dtype=torch.float32)
    largest = upper_entropy(mass, budget)
    assert (largest >= entropy(pignistic_from_mass(mass, budget)) - 1e-4).all()
    assert (largest <= math.log2(1000) + 1e-4).all()
