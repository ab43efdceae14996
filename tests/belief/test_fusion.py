import pytest
import torch
from evtools import DSVector, combinations
from hypothesis import given
from hypothesis import strategies as st

from randomset import Budget, RandomSet, fusion
from randomset.belief.fusion import (
    conjunctive,
    dempster,
    discount,
    disjunctive,
    intersection_closure,
    mean,
    yager,
)
from randomset.belief.operators import BudgetOperators
from randomset.errors import BudgetError, InvalidBeliefError, RandomSetError, ShapeError
from tests import oracles
from tests.strategies import budgets, random_budget, random_mass, seeds


@st.composite
def sources(draw):
    n = draw(st.integers(2, 7))
    chosen = [draw(budgets(min_classes=n, max_classes=n)) for _ in range(2)]
    return chosen, draw(seeds)


def literal(rule, masses, budgets_, n):
    both = [oracles.mass_function(m, b) for m, b in zip(masses, budgets_, strict=True)]
    return rule(*both)


@given(sources())
def test_conjunctive_rules_against_the_definition(case):
    family, seed = case
    n = family[0].num_classes
    masses = [random_mass(b, seed=seed + i, sparse=True) for i, b in enumerate(family)]
    expected = literal(oracles.conjunctive, masses, family, n)
    conflict = expected.pop(frozenset(), 0.0)
    mass, budget, empty = conjunctive(masses, family)
    got = oracles.mass_function(mass, budget)
    assert set(expected) <= set(got)
    assert empty.item() == pytest.approx(conflict, abs=1e-9)
    assert got == pytest.approx({a: expected.get(a, 0.0) for a in got}, abs=1e-9)
    whole = frozenset(range(n))
    cautious, budget, _ = yager(masses, family)
    assert oracles.mass_function(cautious, budget) == pytest.approx(
        {a: got.get(a, 0.0) + conflict * (a == whole) for a in oracles.mass_function(cautious, budget)},
        abs=1e-9,
    )
    if conflict < 0.999:
        agreed, _, _ = dempster(masses, family)
        torch.testing.assert_close(agreed, mass / (1 - conflict))


@given(sources())
def test_disjunctive_against_the_definition(case):
    family, seed = case
    masses = [random_mass(b, seed=seed + i, sparse=True) for i, b in enumerate(family)]
    expected = literal(oracles.disjunctive, masses, family, family[0].num_classes)
    mass, budget, _ = disjunctive(masses, family)
    got = oracles.mass_function(mass, budget)
    assert got == pytest.approx({a: expected.get(a, 0.0) for a in got}, abs=1e-9)


@pytest.mark.parametrize("n", [3, 5])
def test_agreement_with_an_independent_library(n):
    names = [f"c{i}" for i in range(n)]
    budget = Budget.powerset(names)
    masses = [random_mass(budget, seed=i) for i in (1, 2)]
    theirs = [
        DSVector.from_sparse(names, {frozenset(s): v for s, v in zip(budget, m.tolist(), strict=True)})
        for m in masses
    ]
    for ours, rule in [(dempster, combinations.dempster), (disjunctive, combinations.drc)]:
        mass, fused, _ = ours(masses, [budget, budget])
        result = rule(*theirs).to_m()
        assert mass.tolist() == pytest.approx([result[frozenset(s)] for s in fused], abs=1e-9)


def test_batches_and_three_sources():
    family = [random_budget(6, 8, seed=s) for s in (1, 2, 3)]
    masses = [random_mass(b, 4, 5, seed=s) for s, b in enumerate(family)]
    together, budget, _ = dempster(masses, family)
    assert together.shape == (4, 5, len(budget))
    one, two, three = (m[2, 3] for m in masses)
    single, same, _ = dempster([one, two, three], family)
    assert same == budget
    torch.testing.assert_close(together[2, 3], single)
    first, joint, _ = dempster([one, two], family[:2])
    torch.testing.assert_close(dempster([first, three], [joint, family[2]]).mass, single)


def test_many_classes():
    budget = random_budget(300, 500, seed=0, max_size=4)
    masses = [random_mass(budget, 2, seed=s) for s in (1, 2)]
    mass, fused, conflict = conjunctive(masses, [budget, budget])
    expected = oracles.conjunctive(*(oracles.mass_function(m[1], budget) for m in masses))
    assert conflict[1].item() == pytest.approx(expected[frozenset()])
    got = oracles.mass_function(mass[1], fused)
    assert got == pytest.approx({a: expected.get(a, 0.0) for a in got}, abs=1e-12)


def test_zadehs_paradox():
    # Two physicians agree on nothing but a third, most unlikely disease.
    budget = Budget.singletons(["meningitis", "concussion", "tumour"])
    one, two = torch.tensor([0.99, 0.0, 0.01]), torch.tensor([0.0, 0.99, 0.01])
    mass, fused, conflict = dempster([one, two], [budget, budget])
    assert mass.tolist() == pytest.approx([0, 0, 1])
    assert conflict.item() == pytest.approx(0.9999)
    mass, fused, _ = yager([one, two], [budget, budget])
    assert mass[fused.index(["meningitis", "concussion", "tumour"])].item() == pytest.approx(0.9999)


def test_nearly_total_conflict():
    budget = Budget.singletons(30)
    masses = torch.zeros(2, 30, dtype=torch.float64)
    masses[0, 0] = masses[1, 1] = 1 - 1e-7
    masses[:, 2] = 1e-7
    mass, _, conflict = dempster(list(masses), [budget, budget])
    assert mass[2].item() == pytest.approx(1)
    assert conflict.item() == pytest.approx(1)


class TestMean:
    def test_by_hand(self):
        """The budget of the mean has the sets of both; Bel, Pl and BetP are means, too."""
        first, second = Budget.from_sets([{0, 1}], 3), Budget.from_sets([{1, 2}], 3).with_universal_set()
        masses = torch.tensor([0.5, 0.1, 0.0, 0.4]), torch.tensor([0.2, 0.2, 0.0, 0.2, 0.4])
        mass, budget, conflict = mean(list(masses), [first, second])
        assert budget.sets[3:] == ((0, 1), (1, 2), (0, 1, 2))
        assert torch.allclose(mass, torch.tensor([0.35, 0.15, 0.0, 0.2, 0.1, 0.2]))
        assert conflict == 0
        sources = [RandomSet.from_mass(m, b) for m, b in zip(masses, (first, second), strict=True)]
        both = sources[0].combine(sources[1], rule="mean")
        for name in ("lower", "upper", "pignistic"):
            expected = (getattr(sources[0], name) + getattr(sources[1], name)) / 2
            assert torch.allclose(getattr(both, name), expected), name

    def test_batches(self):
        budget = Budget.powerset(3)
        one, many = torch.rand(7), torch.rand(5, 7)
        assert torch.allclose(mean([one, many, many], [budget] * 3).mass, (one + 2 * many) / 3)
        with pytest.raises(ShapeError):
            mean([torch.rand(4, 7), many], [budget] * 2)


def test_dempster_survives_many_conflicts():
    """Six nearly opposite sources agree on 1e-12 of their mass; the fast transform rounds at 1e-7."""
    budget = Budget.powerset("abc")
    yes, no = torch.tensor([[0.999, 0, 0, 0, 0, 0, 0.001], [0, 0.999, 0, 0, 0, 0, 0.001]])
    mass, _, conflict = dempster([yes, no] * 3, [budget] * 6)
    assert torch.allclose(mass[:2], torch.tensor([0.5, 0.5]), atol=1e-2)
    assert conflict == pytest.approx(1)


def test_discounting():
    budget = Budget.singletons("ab")
    mass = torch.tensor([[0.6, 0.4], [1.0, 0.0]])
    got = discount(mass, budget, torch.tensor([0.5, 1.0]))
    torch.testing.assert_close(got, torch.tensor([[0.3, 0.2, 0.5], [1.0, 0.0, 0.0]]))
    again = discount(got, budget.with_universal_set(), 0.0)
    torch.testing.assert_close(again, torch.tensor([[0.0, 0.0, 1.0]] * 2))


def test_gradients():
    family = [random_budget(4, 3, seed=1), random_budget(9, 5, seed=1)]
    for budget in family:
        masses = [random_mass(budget, 2, seed=s).requires_grad_() for s in (1, 2)]
        assert torch.autograd.gradcheck(
            lambda a, b, budget=budget: dempster([a, b], [budget, budget]).mass, masses, fast_mode=True
        )


@given(budgets(max_classes=7))
def test_closure_is_closed_and_minimal(budget):
    closed = intersection_closure(budget)
    family = {frozenset(s) for s in closed.sets}
    assert {frozenset(s) for s in budget.sets} <= family
    assert all(not a & b or a & b in family for a in family for b in family)
    grown = {frozenset(s) for s in budget.sets}
    while more := {a & b for a in grown for b in grown if a & b} - grown:
        grown |= more
    assert family == grown


def test_invalid_input():
    budget = Budget.singletons("ab")
    mass = torch.tensor([0.5, 0.5])
    with pytest.raises(InvalidBeliefError, match=r"in total conflict; got conflict 1 in sample"):
        dempster([torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])], [budget, budget])
    with pytest.raises(BudgetError, match="different classes"):
        dempster([mass, mass], [budget, Budget.singletons("ac")])
    with pytest.raises(ShapeError, match="2 masses and 1 budgets"):
        dempster([mass, mass], [budget])
    for reliability in (-0.1, 1.5, float("nan")):
        with pytest.raises(RandomSetError, match="reliability is out of range"):
            discount(mass, budget, reliability)
    many = Budget.singletons(40)
    with pytest.raises(BudgetError, match="the power set of 40 classes is too large; expected at most 65536"):
        disjunctive([torch.full((40,), 1 / 40)] * 2, [many, many])
    crossing = random_budget(30, 40, seed=0, max_size=20)
    with pytest.raises(BudgetError, match="closure of the budget under intersection is too large"):
        dempster([random_mass(crossing)] * 2, [crossing] * 2, max_sets=100)
    assert fusion.MAX_SETS == 65536


def test_operators_in_place_of_budgets():
    family = [random_budget(4, 3, seed=seed) for seed in (1, 2)]
    masses = [random_mass(budget, seed=seed) for seed, budget in enumerate(family)]
    operators = [BudgetOperators(budget) for budget in family]
    for rule in (conjunctive, dempster, yager, disjunctive):
        found, expected = rule(masses, operators), rule(masses, family)
        assert found.budget == expected.budget
        assert torch.equal(found.mass, expected.mass)
    assert torch.equal(discount(masses[0], operators[0], 0.5), discount(masses[0], family[0], 0.5))
