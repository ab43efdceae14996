import numpy as np
import pytest
import torch
from evtools import conversions
from hypothesis import given
from torch import nn

from randomset import Budget
from randomset.belief import sums
from randomset.belief.measures import pignistic_from_mass
from randomset.belief.operators import BudgetOperators
from randomset.belief.transforms import (
    belief_from_classes,
    belief_from_label_masses,
    belief_from_label_sets,
    belief_from_mass,
    belief_from_probabilities,
    commonality_from_mass,
    least_committed_mass,
    mass_from_belief,
    plausibility_from_mass,
)
from randomset.errors import BudgetError, InvalidBeliefError, LabelError, ShapeError
from tests import oracles
from tests.strategies import budgets, random_budget, random_mass, seeds

SECTION_2 = {"c1": 0.5, "c3": 0.1, "c1 c2": 0.4}
TRANSFORMS = [belief_from_mass, mass_from_belief, plausibility_from_mass, commonality_from_mass]


def section_2(budget):
    mass = torch.zeros(len(budget), dtype=torch.float64)
    for names, value in SECTION_2.items():
        mass[budget.index(names.split())] = value
    return mass


@pytest.mark.parametrize(
    "budget",
    [
        Budget.powerset(["c1", "c2", "c3"]),
        Budget.from_sets([{0, 1}, {1, 2}], ["c1", "c2", "c3"]),
        Budget.from_sets([{0, 1}, {1, 2}, {0, 1, 2}], ["c1", "c2", "c3"]),
    ],
)
def test_worked_example_of_section_2(budget):
    mass = section_2(budget)
    belief = belief_from_mass(mass, budget)
    assert belief[budget.index({"c2", "c3"})].item() == pytest.approx(0.1)
    assert belief[budget.index({"c1", "c2"})].item() == pytest.approx(0.9)
    assert pignistic_from_mass(mass, budget).tolist() == pytest.approx([0.7, 0.2, 0.1])
    torch.testing.assert_close(mass_from_belief(belief, budget), mass)


def test_murder_example_of_appendix_a():
    # A witness, drunk with probability 0.2, saw a man: 0.8 on {Peter, John}, the rest on everybody.
    budget = Budget.powerset(["Peter", "John", "Mary"])
    mass = torch.zeros(7, dtype=torch.float64)
    mass[budget.index({"Peter", "John"})] = 0.8
    mass[budget.index({"Peter", "John", "Mary"})] = 0.2
    named = dict(zip(budget.set_names, belief_from_mass(mass, budget).tolist(), strict=True))
    plausible = dict(zip(budget.set_names, plausibility_from_mass(mass, budget).tolist(), strict=True))
    assert named["{Peter}"] == named["{John}"] == named["{Mary}"] == 0
    assert named["{Peter, John}"] == pytest.approx(0.8)
    assert plausible["{Peter}"] == pytest.approx(1)
    assert plausible["{Mary}"] == pytest.approx(0.2)
    assert pignistic_from_mass(mass, budget).tolist() == pytest.approx([7 / 15, 7 / 15, 1 / 15])


@given(budgets(), seeds)
def test_agreement_with_the_definitions(budget, seed):
    mass = random_mass(budget, 3, seed=seed, sparse=True)
    sets = [frozenset(s) for s in budget.sets]
    for got, definition in [
        (belief_from_mass(mass, budget), oracles.belief),
        (plausibility_from_mass(mass, budget), oracles.plausibility),
        (commonality_from_mass(mass, budget), oracles.commonality),
    ]:
        literal = [[definition(oracles.mass_function(m, budget), a) for a in sets] for m in mass]
        torch.testing.assert_close(got, torch.tensor(literal, dtype=torch.float64))
    literal = [oracles.pignistic(oracles.mass_function(m, budget), budget.num_classes) for m in mass]
    torch.testing.assert_close(pignistic_from_mass(mass, budget), torch.tensor(literal, dtype=torch.float64))


@pytest.mark.parametrize("n", range(2, 9))
def test_agreement_with_the_definitions_on_the_power_set(n):
    budget = Budget.powerset(n)
    mass = random_mass(budget, seed=n, sparse=True)
    m, sets = oracles.mass_function(mass, budget), [frozenset(s) for s in budget.sets]
    for transform, definition in [
        (belief_from_mass, oracles.belief),
        (plausibility_from_mass, oracles.plausibility),
        (commonality_from_mass, oracles.commonality),
    ]:
        literal = torch.tensor([definition(m, a) for a in sets], dtype=torch.float64)
        torch.testing.assert_close(transform(mass, budget), literal)
    torch.testing.assert_close(mass_from_belief(belief_from_mass(mass, budget), budget), mass)


@given(budgets(max_classes=8), seeds)
def test_mass_from_belief_is_the_inverse_of_the_budgets_own_subset_matrix(budget, seed):
    belief = torch.rand(4, len(budget), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = np.linalg.solve(oracles.subset_matrix(budget), belief.numpy().T).T
    torch.testing.assert_close(
        mass_from_belief(belief, budget), torch.from_numpy(expected), atol=1e-9, rtol=1e-9
    )


@given(budgets(closed=True), seeds)
def test_on_a_closed_budget_it_is_equation_2(budget, seed):
    belief = torch.rand(len(budget), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert budget.is_downward_closed
    expected = oracles.alternating_sum(budget, belief.tolist())
    assert mass_from_belief(belief, budget).tolist() == pytest.approx(expected, abs=1e-12)


def test_on_an_open_budget_equation_2_would_be_wrong():
    budget = Budget.from_sets([{0, 1, 2}], "abc")
    label_c = [0.0, 0.0, 1.0, 1.0]
    assert oracles.alternating_sum(budget, label_c)[-1] == 2
    assert mass_from_belief(torch.tensor(label_c), budget).tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_an_independent_library_agrees_on_the_power_set(n):
    budget = Budget.powerset(n)
    code = [sum(1 << c for c in s) for s in budget.sets]
    mass = random_mass(budget, seed=n, sparse=True)
    array = np.zeros(2**n)
    array[code] = mass.numpy()
    for ours, theirs in [
        (belief_from_mass(mass, budget), conversions.mtobel(array)),
        (plausibility_from_mass(mass, budget), conversions.mtopl(array)),
        (commonality_from_mass(mass, budget), conversions.mtoq(array)),
        (mass_from_belief(belief_from_mass(mass, budget), budget), array),
    ]:
        np.testing.assert_allclose(ours.numpy(), theirs[code], atol=1e-12)
    np.testing.assert_allclose(pignistic_from_mass(mass, budget).numpy(), conversions.betp(array))


@given(budgets(), seeds)
def test_permuting_the_classes_commutes(budget, seed):
    n = budget.num_classes
    turn = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
    turned = Budget.from_sets([[turn[c] for c in s] for s in budget.sets], n)
    place = [turned.index([turn[c] for c in s]) for s in budget.sets]
    mass = random_mass(budget, 2, seed=seed)
    moved = torch.zeros_like(mass)
    moved[:, place] = mass
    for transform in TRANSFORMS:
        torch.testing.assert_close(transform(moved, turned)[:, place], transform(mass, budget))
    torch.testing.assert_close(pignistic_from_mass(moved, turned)[:, turn], pignistic_from_mass(mass, budget))


BUDGETS = {
    "sparse closed": Budget.from_sets([{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {5, 6}], 9),
    "sparse open": random_budget(12, 30, seed=1),
    "power set": Budget.powerset(5),
    "dense open": random_budget(5, 12, seed=3),
    "singletons": Budget.singletons(7),
}


@pytest.mark.parametrize("transform", [*TRANSFORMS, pignistic_from_mass], ids=lambda f: f.__name__)
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
class TestEveryTransform:
    """What holds for every linear transform on every kind of budget."""

    def test_any_leading_shape(self, transform, budget):
        mass = random_mass(budget, 2, 3, 4)
        flat = transform(mass.reshape(24, -1), budget)
        torch.testing.assert_close(transform(mass, budget), flat.reshape(2, 3, 4, -1))
        torch.testing.assert_close(transform(mass[1, 2, 3], budget), flat[-1])
        assert transform(mass[:0], budget).shape == (0, 3, 4, flat.shape[-1])

    def test_dtype_is_kept(self, transform, budget):
        mass = random_mass(budget, 5)
        exact = transform(mass, budget)
        for dtype, close in [(torch.float32, 1e-5), (torch.float16, 2e-2), (torch.bfloat16, 1e-1)]:
            got = transform(mass.to(dtype), budget)
            assert got.dtype == dtype
            torch.testing.assert_close(got.double(), exact, atol=close, rtol=close)

    def test_gradients(self, transform, budget):
        mass = random_mass(budget, 2).requires_grad_()
        assert torch.autograd.gradcheck(lambda m: transform(m, budget), mass, fast_mode=True)
        assert torch.autograd.gradgradcheck(lambda m: transform(m, budget) ** 2, mass, fast_mode=True)

    def test_autograd_does_not_change_the_result(self, transform, budget):
        mass = random_mass(budget, 6)
        watched = transform(mass.clone().requires_grad_(), budget)
        torch.testing.assert_close(watched.detach(), transform(mass, budget))

    def test_input_is_not_modified(self, transform, budget):
        mass = random_mass(budget, 3)
        first = mass.clone()
        transform(mass, budget)
        transform(mass.T.contiguous().T, budget)
        assert torch.equal(mass, first)

    def test_large_batches_in_blocks_equal_small_ones(self, transform, budget, monkeypatch):
        mass = random_mass(budget, 3, 7)
        whole = transform(mass, budget)
        monkeypatch.setattr(sums, "_BLOCK", 4 * len(budget))
        torch.testing.assert_close(transform(mass, budget), whole)

    def test_autocast(self, transform, budget):
        mass = random_mass(budget, 3, dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = transform(mass, budget)
        torch.testing.assert_close(inside, transform(mass, budget))

    @pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own
    @pytest.mark.filterwarnings(
        "ignore:There is a performance drop:UserWarning"
    )  # it works, sample by sample
    def test_forward_mode_and_vmap(self, transform, budget):
        mass, change = random_mass(budget, 3), random_mass(budget, 3, seed=1)
        value, tangent, *_ = torch.func.jvp(lambda m: transform(m, budget), (mass,), (change,))
        torch.testing.assert_close(value, transform(mass, budget))
        torch.testing.assert_close(tangent, transform(change, budget))  # it is linear
        one_by_one = torch.func.vmap(lambda m: transform(m, budget))(mass)
        torch.testing.assert_close(one_by_one, value)

    @pytest.mark.slow
    def test_exported_program(self, transform, budget):
        class Wrapped(nn.Module):
            def __init__(self):
                super().__init__()
                self.operators = BudgetOperators(budget)

            def forward(self, x):
                return transform(x, self.operators)

        mass = random_mass(budget, 4, dtype=torch.float32)
        batch = torch.export.Dim("batch", min=2)
        program = torch.export.export(Wrapped(), (mass,), dynamic_shapes=({0: batch},))
        other = random_mass(budget, 9, seed=5, dtype=torch.float32)
        torch.testing.assert_close(program.module()(other), transform(other, budget))


def test_wrong_last_dimension():
    budget = Budget.from_sets([{0, 1}], 3)
    with pytest.raises(ShapeError, match=r"got \(2, 5\); expected \(…, 4\)"):
        mass_from_belief(torch.zeros(2, 5), budget)
    with pytest.raises(ShapeError, match=r"got \(\)"):
        belief_from_mass(torch.tensor(1.0), budget)
    with pytest.raises(ShapeError, match=r"must be a tensor; got ndarray.*torch.as_tensor"):
        belief_from_mass(np.zeros(4), budget)  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="budget has the wrong type; got int"):
        belief_from_mass(torch.zeros(4), 4)  # type: ignore[arg-type]
    with pytest.raises(
        ShapeError, match=r"got \(5,\).*budget of a RandomSet includes Θ: use random_set.budget"
    ):
        belief_from_mass(torch.zeros(5), budget)
    with pytest.raises(ShapeError, match=r"must be floating-point; got torch.int64"):
        belief_from_mass(torch.zeros(4, dtype=torch.long), budget)


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


class TestLeastCommitted:
    """The belief function of nested sets that has a given pignistic probability."""

    @staticmethod
    def literal(p, budget):
        """Nested sets one by one; a set outside the budget leaves its part to its classes."""
        family = budget.with_universal_set()
        mass, order = torch.zeros(len(family), dtype=p.dtype), p.argsort(descending=True).tolist()
        for i in range(1, len(order) + 1):
            following = p[order[i]] if i < len(order) else 0.0
            step, nested = p[order[i - 1]] - following, frozenset(order[:i])
            if nested in {frozenset(focal) for focal in family.sets}:
                mass[family.index(nested)] += i * step
            else:
                for c in nested:
                    mass[c] += step
        return mass

    @given(budgets(), seeds)
    def test_against_a_literal_loop(self, budget, seed):
        generator = torch.Generator().manual_seed(seed)
        p = torch.rand(4, budget.num_classes, generator=generator, dtype=torch.float64)
        p = p / p.sum(1, keepdim=True)
        found = least_committed_mass(p, budget)
        torch.testing.assert_close(found, torch.stack([self.literal(row, budget) for row in p]))
        torch.testing.assert_close(pignistic_from_mass(found, budget.with_universal_set()), p)

    def test_ties_and_certainty(self):
        family = Budget.powerset(3)
        assert least_committed_mass(torch.full((3,), 1 / 3), family)[-1].item() == pytest.approx(1)
        assert least_committed_mass(torch.tensor([0.0, 1.0, 0.0]), family)[1].item() == 1
        halves = least_committed_mass(torch.tensor([0.5, 0.0, 0.5]), family)
        assert halves[family.index({0, 2})].item() == 1

    def test_many_classes(self):
        budget = Budget.singletons(5000)
        p = torch.rand(2, 5000, dtype=torch.float64)
        p = p / p.sum(1, keepdim=True)
        found = least_committed_mass(p, budget)
        assert found[:, -1].tolist() == pytest.approx((5000 * p.amin(1)).tolist())
        torch.testing.assert_close(found[:, :-1], p - p.amin(1, keepdim=True))

    def test_operators_of_a_network_in_half_precision(self):
        budget = Budget.from_sets([set(range(900))], 1000)
        operators = BudgetOperators(budget).half()
        p = torch.linspace(1, 2, 1000, dtype=torch.float64).flip(0)
        p = p / p.sum()
        assert least_committed_mass(p, operators)[-2].item() == pytest.approx(900 * (p[899] - p[900]).item())
