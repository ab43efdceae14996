"""Which sets of classes get an output: given, stored, or chosen from features."""

import dataclasses
import math

import pytest
import torch

from randomset import Budget
from randomset.models.set_selection import ClassLoss
from randomset.training import TrainConfig, train


def test_the_plain_loss():
    outputs = torch.randn(4, 3)
    labels = torch.tensor([0, 1, 2, 0])
    expected = torch.nn.functional.cross_entropy(outputs, labels)
    assert ClassLoss()(outputs, labels).item() == pytest.approx(expected.item())
    mask = torch.nn.functional.one_hot(labels, 3).bool()
    assert ClassLoss()(outputs, mask).item() == pytest.approx(expected.item())
    either = torch.tensor([[True, True, False]])
    share = torch.tensor([[1.0, 3.0, 4.0]]).log()
    assert ClassLoss()(share, either).item() == pytest.approx(math.log(2))  # P({0, 1}) = 1/2
    weighted = ClassLoss()(outputs, labels, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert weighted.item() == pytest.approx(torch.nn.functional.cross_entropy(outputs[:2], labels[:2]).item())


QUICK = TrainConfig(epochs=2, num_sets=5)


@pytest.mark.slow
class TestTraining:
    def test_tables_choose_their_budget_themselves(self, digit_images):
        inputs, labels, classes = digit_images
        result = train(QUICK, inputs.flatten(1), labels, classes)
        assert result.budgeter is not None
        assert result.model.backbone.spec["name"] == "mlp"

    def test_a_given_budget_is_used_and_kept(self, digit_images, tmp_path):
        budget = Budget.from_sets([{"1", "7"}], digit_images[2])
        config = dataclasses.replace(QUICK, from_scratch=True)
        result = train(config, *digit_images, budget=budget, out=tmp_path)
        assert result.model.budget == budget == Budget.load(tmp_path / "budget.json")
        assert result.first is None  # nothing to choose, and nothing to start from

    def test_set_valued_labels(self, digit_images):
        inputs, labels, classes = digit_images
        mask = torch.nn.functional.one_hot(labels, 10).bool()
        mask[:, 3] |= mask[:, 8]
        mask[:, 8] |= mask[:, 3]  # never distinguished
        for data in (inputs, inputs.flatten(1)):
            result = train(QUICK, data, mask, classes, (data[:50], mask[:50]))
            assert {"3", "8"} in result.model.budget

    def test_classes_too_few_for_sets(self):
        inputs, labels = torch.randn(60, 3), torch.arange(60) % 2
        assert train(QUICK, inputs, labels, ("a", "b")).model.budget == Budget.singletons(["a", "b"])
        labels = torch.arange(60) % 3
        budget = train(QUICK, inputs, labels, ("a", "b", "c")).model.budget
        assert len(budget) == 6  # the pairs; Θ is in every prediction anyway


def test_all_sets_of_few_classes_need_no_choice():
    inputs, labels = torch.randn(60, 3), torch.arange(60) % 4
    result = train(TrainConfig(num_sets=10, epochs=1), inputs, labels, tuple("abcd"), progress=False)
    assert len(result.model.budget) == 14  # all of 15 but Θ
    assert result.budgeter is None
