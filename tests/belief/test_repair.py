import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.optimize import minimize

from randomset import Budget
from randomset.belief.measures import pignistic_from_mass
from randomset.belief.repair import Repair, repair_belief
from randomset.belief.transforms import belief_from_classes, belief_from_mass, mass_from_belief
from randomset.errors import InvalidBeliefError, RandomSetError
from tests import oracles
from tests.strategies import budgets, random_budget, random_mass, seeds

METHODS: list[Repair] = ["clip", "projection", "cautious"]


def noisy(budget, count, scale, seed=0, *, dtype=torch.float32):
    """Encoded labels with noise, like the outputs of a poor network."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(budget.num_classes, (count,), generator=generator)
    belief = belief_from_classes(labels, budget, dtype=dtype)
    noise = torch.randn(belief.shape, generator=generator, dtype=dtype)
    return (belief + scale * noise).clamp(0, 1), labels


@pytest.mark.parametrize("method", METHODS)
@given(budgets(), seeds)
def test_result_is_always_valid(method, budget, seed):
    generator = torch.Generator().manual_seed(seed)
    belief = torch.rand(6, len(budget), generator=generator, dtype=torch.float64)
    mass, validity = repair_belief(belief, budget, method)
    assert mass.shape[-1] == len(budget.with_universal_set())
    assert mass.min() >= 0
    assert mass.sum(-1).tolist() == pytest.approx([1.0] * 6)
    raw = mass_from_belief(belief, budget)
    negative = raw.clamp_max(0).neg().sum(-1)
    assert validity.negative.tolist() == pytest.approx((negative / raw.abs().sum(-1)).tolist())
    assert validity.excess.tolist() == pytest.approx((raw.sum(-1) - 1).clamp_min(0).tolist())


@pytest.mark.parametrize("method", METHODS)
@given(budgets(), seeds)
def test_valid_beliefs_are_unchanged(method, budget, seed):
    theta = budget.with_universal_set()
    mass = random_mass(theta, 4, seed=seed, sparse=True)
    belief = belief_from_mass(mass, theta)[:, : len(budget)]
    repaired, validity = repair_belief(belief, budget, method)
    torch.testing.assert_close(repaired, mass, atol=1e-9, rtol=0)
    assert not validity.repaired.any()


class TestCautious:
    """No belief is larger than the predicted one."""

    def test_by_hand(self):
        # {0, 1} was predicted 0.6, but its classes 0.5 and 0.2: both are scaled by 6/7, {2} is not.
        budget = Budget.from_sets([{0, 1}], 3)
        mass, validity = repair_belief(torch.tensor([0.5, 0.2, 0.1, 0.6]), budget, "cautious")
        assert mass.tolist() == pytest.approx([3 / 7, 1.2 / 7, 0.1, 0, 0.3])
        assert validity.repaired

    @given(budgets(), seeds)
    def test_never_more_than_predicted(self, budget, seed):
        generator = torch.Generator().manual_seed(seed)
        belief = torch.rand(6, len(budget), generator=generator, dtype=torch.float64)
        mass, _ = repair_belief(belief, budget, "cautious")
        found = belief_from_mass(mass, budget.with_universal_set())[:, : len(budget)]
        proper = len(budget) - budget.has_universal_set
        assert (found[:, :proper] <= belief[:, :proper] + 1e-9).all()

    def test_power_set_and_sparse_budget_agree(self):
        # A power set uses the fast transform; one with few of its sets sums pair by pair.
        family = Budget.powerset(6)
        belief, _ = noisy(family, 20, 0.2, dtype=torch.float64)
        found, _ = repair_belief(belief, family, "cautious")
        raw = mass_from_belief(belief, family).clamp_min(0)
        raw[:, -1] = 0
        sets = [frozenset(focal) for focal in family.sets]
        inside = torch.tensor([[float(b <= a) for b in sets] for a in sets], dtype=torch.float64)
        sums = raw @ inside.T
        target = torch.cat((belief[:, :-1], torch.ones(20, 1, dtype=torch.float64)), 1)
        ratio = torch.where(sums > target, target / sums.clamp_min(1e-300), 1.0)
        factor = torch.stack([ratio[:, inside[:, b] > 0].amin(1) for b in range(len(sets))], 1)
        torch.testing.assert_close(found[:, :-1], (raw * factor)[:, :-1])

    def test_contradictions_leave_room_for_the_universal_set(self):
        budget = random_budget(10, 20, seed=0)
        belief, _ = noisy(budget, 200, 0.05)
        cautious, validity = repair_belief(belief, budget, "cautious")
        clipped, _ = repair_belief(belief, budget)
        assert validity.repaired.all()
        assert (cautious[:, -1] > 0).all()
        assert (clipped[:, -1] == 0).any()


class TestClip:
    """Hand-worked values of the paper's repair."""

    budget = Budget.from_sets([{0, 1}], 3)

    def test_missing_mass_goes_to_the_universal_set(self):
        mass, validity = repair_belief(torch.tensor([0.5, 0.2, 0.1, 0.6]), self.budget)
        assert mass.tolist() == pytest.approx([0.5, 0.2, 0.1, 0, 0.2])  # m({0, 1}) was −0.1
        assert validity.negative.item() == pytest.approx(0.1 / 0.9)
        assert validity.excess.item() == 0
        assert validity.repaired.item()

    def test_sum_above_one_is_normalised(self):
        mass, validity = repair_belief(torch.tensor([0.8, 0.4, 0.4, 1.0]), self.budget)
        assert mass.tolist() == pytest.approx([0.5, 0.25, 0.25, 0, 0])  # clipped 0.8, 0.4, 0.4, 0
        assert validity.excess.item() == pytest.approx(0.4)  # 0.8 + 0.4 + 0.4 − 0.2 − 1

    def test_missing_mass_alone_needs_no_repair(self):
        mass, validity = repair_belief(torch.tensor([0.3, 0.2, 0.1, 0.6]), self.budget)
        assert mass.tolist() == pytest.approx([0.3, 0.2, 0.1, 0.1, 0.3])
        assert not validity.repaired.item()

    def test_universal_set_is_not_duplicated(self):
        budget = self.budget.with_universal_set()
        mass, validity = repair_belief(torch.tensor([0.3, 0.2, 0.1, 0.6, 0.9]), budget)
        assert mass.tolist() == pytest.approx([0.3, 0.2, 0.1, 0.1, 0.3])  # 0.2 of its own, 0.1 missing
        assert validity.repaired.item()


class TestProjection:
    """The nearest valid belief function."""

    @given(budgets(max_classes=4), seeds)
    def test_nearest_valid_belief_function(self, budget, seed):
        generator = torch.Generator().manual_seed(seed)
        belief = torch.rand(len(budget), generator=generator, dtype=torch.float64)
        mass, _ = repair_belief(belief, budget, "projection")
        theta = budget.with_universal_set()
        matrix = oracles.subset_matrix(theta)[: len(budget)]
        if budget.has_universal_set:  # Bel(Θ) is 1 whatever the masses
            matrix, belief = matrix[:-1], belief[:-1]

        def error(m):
            return float(((matrix @ m - belief.numpy()) ** 2).sum())

        best = minimize(
            error,
            np.full(len(theta), 1 / len(theta)),
            bounds=[(0, 1)] * len(theta),
            constraints={"type": "eq", "fun": lambda m: m.sum() - 1},
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        assert error(mass.numpy()) <= best.fun * 1.01 + 1e-5

    @pytest.mark.slow
    @pytest.mark.parametrize("scale", [0.02, 0.05, 0.1])
    def test_noisy_power_set_keeps_its_prediction(self, scale):
        budget = Budget.powerset(10)
        belief, labels = noisy(budget, 200, scale)
        singletons = belief[:, :10].argmax(-1)
        assert torch.equal(singletons, labels)
        projected, _ = repair_belief(belief, budget, "projection")
        assert torch.equal(pignistic_from_mass(projected, budget).argmax(-1), singletons)

    def test_larger_sets_correct_noisy_singletons(self):
        budget = Budget.powerset(10)
        belief, labels = noisy(budget, 300, 0.35, seed=1)
        right = {"singletons": (belief[:, :10].argmax(-1) == labels).float().mean().item()}
        for method in METHODS:
            mass, _ = repair_belief(belief, budget, method)
            decided = pignistic_from_mass(mass, budget).argmax(-1)
            right[method] = (decided == labels).float().mean().item()
        assert right["projection"] >= right["singletons"] > right["clip"], right

    def test_samples_are_independent_of_the_batch(self):
        budget = Budget.powerset(5)
        belief, _ = noisy(budget, 40, 0.2, dtype=torch.float64)
        together, _ = repair_belief(belief, budget, "projection")
        alone = torch.stack([repair_belief(one, budget, "projection")[0] for one in belief])
        # Both stop within a thousandth of the optimum; rounding may lead them there on different ways.
        torch.testing.assert_close(together, alone, atol=2e-3, rtol=0)

    @pytest.mark.slow
    def test_converges_with_hundreds_of_classes(self):
        budget = random_budget(300, 900, seed=0, max_size=3)
        belief, labels = noisy(budget, 8, 0.02, dtype=torch.float64)
        mass, _ = repair_belief(belief, budget, "projection")
        pignistic = pignistic_from_mass(mass, budget.with_universal_set())
        assert torch.equal(pignistic.argmax(-1), labels)
        assert pignistic.amax(-1).min() > 0.9

    def test_gradients(self):
        belief = noisy(Budget.powerset(3), 2, 0.2, dtype=torch.float64)[0].requires_grad_()
        repair_belief(belief, Budget.powerset(3), "projection")[0][:, 0].sum().backward()
        assert belief.grad is not None
        assert belief.grad.isfinite().all()
        assert belief.grad.abs().sum() > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_infinite_beliefs(bad):
    belief = torch.full((3, 4), 0.2)
    belief[1, 2] = bad
    with pytest.raises(InvalidBeliefError, match=f"outputs are not finite; got {bad} in sample 1"):
        repair_belief(belief, Budget.from_sets([{0, 1}], 3))


def test_unknown_method():
    with pytest.raises(
        RandomSetError, match="unknown repair; got magic; expected one of clip, projection, cautious"
    ):
        repair_belief(torch.zeros(4), Budget.from_sets([{0, 1}], 3), "magic")  # type: ignore[arg-type]
