import numpy as np
import pytest
import torch
from hypothesis import given

from randomset import (
    Budget,
    BudgetOperators,
    belief_from_classes,
    belief_from_label_masses,
    belief_from_label_sets,
    belief_from_mass,
    belief_from_probabilities,
    mass_from_belief,
)
from randomset.errors import InvalidBeliefError, LabelError, ShapeError
from tests import oracles
from tests.strategies import budgets, random_mass, seeds

PETS = Budget.from_sets([{"cat", "dog"}, {"cat", "dog", "car"}], ["cat", "dog", "car", "bus"])


@given(budgets())
def test_the_encoding_of_a_class_inverts_to_certainty(budget):
    n = budget.num_classes
    belief = belief_from_classes(torch.arange(n), budget)
    literal = [[float(c in s) for s in budget.sets] for c in range(n)]
    assert belief.tolist() == literal
    assert torch.equal(mass_from_belief(belief, budget), torch.eye(n, len(budget)))


@given(budgets(), seeds)
def test_label_sets_against_the_definition(budget, seed):
    mask = torch.rand(5, budget.num_classes, generator=torch.Generator().manual_seed(seed)) < 0.4
    mask[:, seed % budget.num_classes] = True
    labels = [{c for c in range(budget.num_classes) if row[c]} for row in mask]
    literal = [[float(label <= set(s)) for s in budget.sets] for label in labels]
    assert belief_from_label_sets(mask, budget).tolist() == literal


def test_label_set_in_the_budget_inverts_to_its_mass():
    belief = belief_from_label_sets(PETS.mask_from_sets([{"cat", "dog"}, {"bus"}]), PETS)
    mass = mass_from_belief(belief, PETS)
    assert mass[0].tolist() == [0, 0, 0, 0, 1, 0]
    assert mass[1].tolist() == [0, 0, 0, 1, 0, 0]


def test_label_set_outside_the_budget_goes_to_the_smallest_superset():
    belief = belief_from_label_sets(PETS.mask_from_sets([{"cat", "car"}, {"cat", "bus"}]), PETS)
    mass = mass_from_belief(belief, PETS)
    assert mass[0].tolist() == [0, 0, 0, 0, 0, 1]
    assert mass[1].tolist() == [0, 0, 0, 0, 0, 0]  # only Θ, which is not there, holds it


@given(budgets(), seeds)
def test_soft_labels(budget, seed):
    p = random_mass(Budget.singletons(budget.num_classes), 3, seed=seed)
    belief = belief_from_probabilities(p, budget)
    for row, got in zip(p.tolist(), belief.tolist(), strict=True):
        m = {frozenset([c]): value for c, value in enumerate(row)}
        assert got == pytest.approx([oracles.belief(m, frozenset(s)) for s in budget.sets])
    masses = torch.cat((p, torch.zeros(3, budget.num_sets, dtype=p.dtype)), -1)
    torch.testing.assert_close(belief, belief_from_mass(masses, budget))


@given(budgets(), seeds)
def test_soft_labels_over_sets(budget, seed):
    theta = budget.with_universal_set()
    masses = random_mass(theta, 3, seed=seed, sparse=True)
    belief = belief_from_label_masses(masses, budget)
    for row, got in zip(masses, belief.tolist(), strict=True):
        m = oracles.mass_function(row, theta)
        assert got == pytest.approx([oracles.belief(m, frozenset(s)) for s in budget.sets])
    own = random_mass(budget, 2, seed=seed)
    torch.testing.assert_close(belief_from_label_masses(own, budget), belief_from_mass(own, budget))
    with pytest.raises(InvalidBeliefError, match="the masses do not sum to one"):
        belief_from_label_masses(2 * own, budget)
    with pytest.raises(ShapeError, match="the masses have the wrong shape"):
        belief_from_label_masses(own[:, 1:], budget)


def test_shapes_and_types():
    labels = torch.tensor([[0, 1, 2], [3, 0, 1]], dtype=torch.int16)
    belief = belief_from_classes(labels, PETS, dtype=torch.float64)
    assert belief.shape == (2, 3, 6)
    assert belief.dtype == torch.float64
    assert belief_from_classes(torch.tensor(1), PETS).tolist() == [0, 1, 0, 0, 1, 1]
    assert belief_from_classes(torch.zeros(0, dtype=torch.long), PETS).shape == (0, 6)


@pytest.mark.parametrize("bad", [4, -1, 1000])
def test_label_out_of_range(bad):
    with pytest.raises(LabelError, match=f"not a class index; got {bad} in sample 1; expected 0 to 3"):
        belief_from_classes(torch.tensor([0, bad]), PETS)


def test_arrays_lists_and_names():
    expected = [[1, 0, 0, 0, 1, 1], [0, 0, 0, 1, 0, 0]]
    for labels in ([0, 3], np.array([0, 3]), torch.tensor([0, 3], dtype=torch.uint16)):
        assert belief_from_classes(labels, PETS).tolist() == expected
    assert belief_from_label_sets([{"cat"}, {"bus"}], PETS).tolist() == expected
    assert belief_from_label_sets([{"cat"}, [3]], BudgetOperators(PETS)).tolist() == expected
    assert belief_from_probabilities([1.0, 0.0, 0.0, 0.0], PETS).tolist() == expected[0]
    with pytest.raises(LabelError, match=r"must be numbers; got list \['cat'.*use belief_from_label_sets"):
        belief_from_classes(["cat", "dog"], PETS)


def test_labels_of_the_wrong_type():
    with pytest.raises(LabelError, match=r"must be integers; got torch.float32"):
        belief_from_classes(torch.tensor([0.0]), PETS)
    with pytest.raises(ShapeError, match=r"torch.int64 \(2, 4\); expected torch.bool"):
        belief_from_label_sets(torch.zeros(2, 4, dtype=torch.long), PETS)
    with pytest.raises(ShapeError, match=r"expected torch.bool \(…, 4\)"):
        belief_from_label_sets(torch.ones(2, 3, dtype=torch.bool), PETS)


def test_empty_label_set():
    mask = torch.tensor([[True, False, False, False], [False] * 4])
    with pytest.raises(LabelError, match=r"label is empty; got an empty set at \[1\]"):
        belief_from_label_sets(mask, PETS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 0.2, 0.1, 0.1], "do not sum to one; got 0.9 in sample 1"),
        ([1.5, -0.5, 0.0, 0.0], "are negative; got -0.5 in sample 1"),
        ([float("nan"), 0.5, 0.5, 0.0], "are not finite; got nan in sample 1"),
    ],
)
def test_invalid_soft_labels(values, message):
    with pytest.raises(InvalidBeliefError, match=message):
        belief_from_probabilities(torch.tensor([[1.0, 0.0, 0.0, 0.0], values]), PETS)
