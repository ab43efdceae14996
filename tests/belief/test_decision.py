import itertools

import numpy as np
import pytest
import torch
from evtools import DSVector
from evtools import decision as evtools_decision
from hypothesis import given
from scipy.optimize import linprog

from randomset import Budget
from randomset.belief.decision import (
    e_admissibility,
    hurwicz,
    interval_dominance,
    maximality,
    minimum_expected_cost,
    pignistic_decision,
    reject,
    utility,
)
from randomset.errors import LabelError, RandomSetError, ShapeError
from tests import oracles
from tests.strategies import budgets, random_mass, seeds


def corners(mass, budget):
    return np.array(oracles.vertices(oracles.mass_function(mass, budget), budget.num_classes))


def cost_matrix(seed, actions, n):
    return torch.rand(actions, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(budgets(max_classes=5), seeds)
def test_dominance_and_maximality_against_the_vertices(budget, seed):
    mass = random_mass(budget, seed=seed, sparse=True)
    cost = cost_matrix(seed, 4, budget.num_classes)
    expected = corners(mass, budget) @ cost.numpy().T  # a linear function is extreme at a vertex
    low, high = expected.min(0), expected.max(0)
    assert interval_dominance(mass, budget, cost).tolist() == (low <= high.min() + 1e-6).tolist()
    beaten = [any((expected[:, a] - expected[:, b]).min() > 1e-6 for b in range(4)) for a in range(4)]
    assert maximality(mass, budget, cost).tolist() == [not b for b in beaten]


@given(budgets(max_classes=5), seeds)
def test_default_is_zero_one_cost(budget, seed):
    n = budget.num_classes
    mass = random_mass(budget, 3, seed=seed)
    wrong = 1 - torch.eye(n, dtype=torch.float64)
    torch.testing.assert_close(interval_dominance(mass, budget), interval_dominance(mass, budget, wrong))
    torch.testing.assert_close(maximality(mass, budget), maximality(mass, budget, wrong))
    for optimism in (0.0, 0.3, 1.0):
        plain = hurwicz(mass, budget, optimism)
        assert torch.equal(plain, hurwicz(mass, budget, optimism, wrong))
    assert torch.equal(pignistic_decision(mass, budget), minimum_expected_cost(mass, budget, wrong))


@given(budgets(max_classes=4), seeds)
def test_e_admissibility_against_linear_programming(budget, seed):
    n = budget.num_classes
    mass = random_mass(budget, seed=seed, sparse=True)
    vertex = corners(mass, budget)
    literal = []
    for c in range(n):
        # Find weights of the vertices whose mixture makes class c as far ahead as can be.
        ahead = np.array([vertex[:, other] - vertex[:, c] for other in range(n) if other != c])
        bounds = [(0, None)] * len(vertex) + [(None, None)]
        found = linprog(
            [0.0] * len(vertex) + [1.0],
            A_ub=np.c_[ahead, -np.ones(n - 1)],
            b_ub=np.zeros(n - 1),
            A_eq=[[1.0] * len(vertex) + [0.0]],
            b_eq=[1.0],
            bounds=bounds,
        )
        literal.append(bool(found.fun <= 1e-6))
    assert e_admissibility(mass, budget).tolist() == literal


@given(budgets(max_classes=6), seeds)
def test_the_rules_are_nested(budget, seed):
    mass = random_mass(budget, 5, seed=seed)
    best = torch.nn.functional.one_hot(pignistic_decision(mass, budget), budget.num_classes).bool()
    admissible, kept = e_admissibility(mass, budget), interval_dominance(mass, budget)
    assert (admissible | ~best).all()
    assert (kept | ~admissible).all()


@pytest.mark.parametrize("seed", range(5))
def test_agreement_with_an_independent_library(seed):
    names = ["a", "b", "c", "d"]
    budget = Budget.powerset(names)
    mass = random_mass(budget, seed=seed, sparse=True)
    theirs = DSVector.from_sparse(
        names, {frozenset(names[c] for c in s): v for s, v in zip(budget.sets, mass.tolist(), strict=True)}
    )
    for optimism in (0.0, 0.25, 0.75, 1.0):
        label, _ = evtools_decision.hurwicz(theirs, alpha=1 - optimism)  # theirs weighs pessimism
        assert hurwicz(mass, budget, optimism).item() == label
    assert pignistic_decision(mass, budget).item() == evtools_decision.pignistic_decision(theirs)[0]


def test_hand_worked_costs():
    budget = Budget.from_sets([{0, 1}], 3)
    mass = torch.tensor([0.5, 0.0, 0.1, 0.4])  # BetP = (0.7, 0.2, 0.1)
    cost = torch.tensor([[0.0, 1.0, 50.0], [1.0, 1.0, 0.0]])  # 0.2 + 5 against 0.9
    assert minimum_expected_cost(mass, budget, cost).item() == 1
    assert pignistic_decision(mass, budget).item() == 0


def test_rejection():
    budget = Budget.from_sets([{0, 1}], 3)
    mass = torch.tensor([[0.5, 0.0, 0.1, 0.4], [0.4, 0.3, 0.3, 0.0]])
    for level in (0.5, np.float32(0.5), np.float64(0.5)):
        assert reject(mass, budget, level).tolist() == [0, -1]
    assert reject(mass, budget, 0.0).tolist() == [0, 0]
    assert reject(mass, budget, 1.0).tolist() == [-1, -1]


def test_hand_worked_utilities():
    sets = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]]).bool()
    labels = torch.zeros(5, dtype=torch.long)
    assert utility(sets, labels, "discounted").tolist() == pytest.approx([1, 0.5, 0.25, 0, 0])
    assert utility(sets, labels, "u65").tolist() == pytest.approx([1, 0.65, 0.3625, 0, 0])
    assert utility(sets, labels, "u80").tolist() == pytest.approx([1, 0.8, 0.475, 0, 0])


def test_invalid_input():
    budget = Budget.singletons(3)
    mass = torch.tensor([0.2, 0.3, 0.5])
    for level in (-0.1, 1.1, float("nan")):
        with pytest.raises(RandomSetError, match="level is out of range"):
            reject(mass, budget, level)
        with pytest.raises(RandomSetError, match="optimism is out of range"):
            hurwicz(mass, budget, level)
    with pytest.raises(ShapeError, match=r"the costs must be a matrix; got \(3,\)"):
        maximality(mass, budget, torch.zeros(3))
    with pytest.raises(ShapeError, match=r"the costs have the wrong shape; got \(2, 4\)"):
        minimum_expected_cost(mass, budget, torch.zeros(2, 4))
    for bad in (float("nan"), float("inf")):
        cost = torch.tensor([[0.0, 1.0, bad], [1.0, 0.0, 1.0]])
        for decide in (minimum_expected_cost, interval_dominance, maximality):
            with pytest.raises(RandomSetError, match=f"the costs are not finite; got {bad}"):
                decide(mass, budget, cost)
    with pytest.raises(LabelError, match="a label is not a class index"):
        utility(torch.ones(1, 3).bool(), torch.tensor([3]))
    with pytest.raises(RandomSetError, match=r"13 classes; expected at most 12\. Use maximality"):
        e_admissibility(torch.full((13,), 1 / 13), Budget.singletons(13))
    with pytest.raises(ShapeError, match="the decisions do not match the labels"):
        utility(torch.ones(2, 3).bool(), torch.zeros(3))
    with pytest.raises(RandomSetError, match="unknown utility; got u99"):
        utility(torch.ones(2, 3).bool(), torch.zeros(2), "u99")  # type: ignore[arg-type]


def test_utility_depends_on_the_size_of_the_set():
    for size, members in ((s, m) for s in (1, 2, 3) for m in itertools.combinations(range(3), s)):
        mask = torch.zeros(3, dtype=torch.bool)
        mask[list(members)] = True
        assert utility(mask, torch.tensor(members[0]), "discounted").item() == pytest.approx(1 / size)
