"""The operators of a budget as a module."""

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSet
from randomset.belief.measures import pignistic_from_mass
from randomset.belief.operators import BudgetOperators
from randomset.belief.transforms import belief_from_mass
from randomset.errors import BudgetError
from tests.strategies import random_budget, random_mass

BUDGETS = {
    "sparse closed": Budget.from_sets([{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {5, 6}], 9),
    "sparse open": random_budget(12, 30, seed=1),
    "power set": Budget.powerset(5),
    "dense open": random_budget(5, 12, seed=3),
    "singletons": Budget.singletons(7),
}


def test_no_matrix_products_at_reduced_precision():
    budget = Budget.powerset(10)
    mass = random_mass(budget, 50, dtype=torch.float32)
    dense_shares = budget.operators_on(mass.device).dense_shares
    exact = pignistic_from_mass(mass.double(), budget)
    assert dense_shares(mass) is not None
    torch.set_float32_matmul_precision("medium")  # products in bfloat16, on processors that have it
    try:
        assert dense_shares(mass) is None
        torch.testing.assert_close(pignistic_from_mass(mass, budget).double(), exact, atol=1e-6, rtol=0)
    finally:
        torch.set_float32_matmul_precision("highest")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert dense_shares(mass) is None
    assert dense_shares(mass.half()) is None
    assert dense_shares(mass.to("meta")) is None
    assert dense_shares(mass) is not None


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrices_for_a_few_samples(name, dtype):
    operators = BudgetOperators(BUDGETS[name])
    x = torch.rand(3, len(BUDGETS[name]), dtype=dtype)
    inverse, members = operators.dense_inverse(x), operators.dense_members(x)
    assert inverse is not None
    assert members is not None
    torch.testing.assert_close(inverse @ x.T, operators.invert_subsets_with_theta(x.T.contiguous()))
    torch.testing.assert_close(members @ x.T, operators.sum_per_class(x.T.contiguous()))
    many = x.repeat(2**15, 1)
    for dense in (operators.dense_inverse, operators.dense_members):
        assert dense(many) is None
        assert dense(x.half()) is None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert dense(x) is None
    assert BudgetOperators(Budget.powerset(10)).dense_inverse(torch.rand(1, 1023)) is None


@pytest.mark.parametrize("name", BUDGETS)
def test_a_sample_alone_and_among_many(name):
    logits = 3 * torch.randn(4000, len(BUDGETS[name]), generator=torch.Generator().manual_seed(0))
    many = RandomSet.from_logits(logits, BUDGETS[name])
    for i in range(5):
        alone = RandomSet.from_logits(logits[i : i + 1], BUDGETS[name])
        for field in ("mass", "pignistic", "upper", "entropy"):
            pair = getattr(alone, field), getattr(many, field)[i : i + 1]
            torch.testing.assert_close(*pair, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(alone.validity.negative, many.validity.negative[i : i + 1])


class TestOperatorsInAModule:
    """The budget's tables as buffers of a network."""

    def network(self, budget):
        module = nn.Module()
        module.operators = BudgetOperators(budget)
        module.layer = nn.Linear(3, len(budget))
        return module

    @pytest.mark.parametrize("name", ["sparse open", "power set"])
    def test_state_dict_round_trip(self, name):
        one, two = self.network(BUDGETS[name]), self.network(BUDGETS[name])
        keys = {"operators.members", "operators.fingerprint", "layer.weight", "layer.bias"}
        assert set(one.state_dict()) == keys
        two.load_state_dict(one.state_dict())
        assert torch.equal(one.layer.weight, two.layer.weight)

    def test_state_of_another_budget(self):
        one = self.network(Budget.from_sets([{0, 1}], 3))
        two = self.network(Budget.from_sets([{0, 2}], 3))
        with pytest.raises(BudgetError, match="the saved state belongs to another budget"):
            two.load_state_dict(one.state_dict())
        three = self.network(Budget.from_sets([{0, 1}, {1, 2}], 3))
        with pytest.raises(
            BudgetError, match=r"3 classes and 1 set: \{0, 1\}; expected 3 classes and 2 sets"
        ):
            three.load_state_dict(one.state_dict())

    def test_state_with_other_class_names(self):
        one, two = self.network(Budget.powerset("abc")), self.network(Budget.powerset("acb"))
        with pytest.raises(BudgetError, match="different class names or a different order; expected a, c, b"):
            two.load_state_dict(one.state_dict())

    def test_operators_on_another_device(self):
        operators = BudgetOperators(BUDGETS["sparse open"]).to("meta")
        with pytest.raises(BudgetError, match="on different devices; got meta and cpu"):
            belief_from_mass(random_mass(BUDGETS["sparse open"], 2), operators)

    @pytest.mark.parametrize("name", ["sparse open", "power set"])
    def test_built_in_inference_mode(self, name):
        budget = Budget.from_json(BUDGETS[name].to_json())  # nothing cached
        mass = random_mass(budget, 2)
        with torch.inference_mode():
            pignistic_from_mass(mass, budget)
        watched = mass.clone().requires_grad_()
        pignistic_from_mass(watched, budget).square().sum().backward()
        assert watched.grad is not None

    def test_default_dtype_and_device_have_no_effect(self):
        budget = Budget.from_json(BUDGETS["sparse open"].to_json())
        before = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float16)
            with torch.device("meta"):
                operators = BudgetOperators(budget)
        finally:
            torch.set_default_dtype(before)
        mass = random_mass(budget, 2)
        torch.testing.assert_close(
            belief_from_mass(mass, operators), belief_from_mass(mass, BUDGETS["sparse open"])
        )

    def test_half_precision(self):
        network = self.network(BUDGETS["sparse open"])
        before = {name: table.clone() for name, table in network.operators.named_buffers()}
        network.half()
        for name, table in network.operators.named_buffers():
            assert torch.equal(table, before[name])
        mass = random_mass(BUDGETS["sparse open"], 2, dtype=torch.float16)
        assert belief_from_mass(mass, network.operators).dtype == torch.float16

    def test_moves_with_the_network(self):
        network = self.network(BUDGETS["sparse open"]).to("meta")
        assert {table.device.type for table in network.operators.buffers()} == {"meta"}
        out = belief_from_mass(torch.zeros(2, 42, device="meta").requires_grad_(), network.operators)
        assert out.device.type == "meta"
