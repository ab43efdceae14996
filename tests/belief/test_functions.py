"""Properties and decisions of a batch of belief functions."""

import pytest
import torch

from randomset import Budget, RandomSet
from randomset.errors import RandomSetError, ShapeError

PETS = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])


def test_properties_of_the_worked_example(answer):
    first = answer[0]
    assert answer.budget.set_names[-1] == "{cat, dog, car}"
    assert first.mass.tolist() == pytest.approx([0.5, 0, 0.1, 0.4, 0])
    assert first.belief.tolist() == pytest.approx([0.5, 0, 0.1, 0.9, 1])
    assert first.plausibility.tolist() == pytest.approx([0.9, 0.4, 0.1, 0.9, 1])
    assert first.commonality.tolist() == pytest.approx([0.9, 0.4, 0.1, 0.4, 0])
    assert first.pignistic.tolist() == pytest.approx([0.7, 0.2, 0.1])
    assert first.lower.tolist() == pytest.approx([0.5, 0, 0.1])
    assert first.upper.tolist() == pytest.approx([0.9, 0.4, 0.1])
    assert answer.labels.tolist() == [0, 2]
    assert answer.label_names == ["cat", "car"]
    assert answer.confidence.tolist() == pytest.approx([0.7, 1])
    assert answer.credal_width.tolist() == pytest.approx([0.4, 0])
    assert answer.entropy.tolist() == pytest.approx([1.1568, 0], abs=1e-4)
    assert answer.nonspecificity.tolist() == pytest.approx([0.4, 0])
    assert answer.upper_entropy[0].item() == pytest.approx(1.36096, abs=1e-4)  # at (0.5, 0.4, 0.1)
    assert answer.lower_entropy[0].item() == pytest.approx(0.46900, abs=1e-4)  # at (0.9, 0, 0.1)
    lower, upper = answer.bounds([{"dog", "car"}])
    assert (lower[0].item(), upper[0].item()) == pytest.approx((0.1, 0.5))
    assert answer.cost_bounds(torch.tensor([0.0, 10.0, 100.0]))[1].tolist() == pytest.approx([14, 100])
    assert answer.contains(torch.tensor([0.6, 0.3, 0.1])).tolist() == [True, False]
    assert answer.vertices().shape == (2, 6, 3)
    assert answer.decide().tolist() == [[True, False, False], [False, False, True]]
    assert answer.decide("e-admissibility")[0].tolist() == [True, False, False]
    assert answer.reject(0.8).tolist() == [-1, 2]


def test_cautious_rejection_and_names(answer):
    unsure = RandomSet.from_mass(torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.9, 0.0, 0.1, 0.0]]), PETS)
    assert unsure.reject(0.5).tolist() == [0, 0]
    assert unsure.reject(0.5, by="lower").tolist() == [-1, 0]
    assert unsure.names(unsure.reject(0.5, by="lower")) == [None, "cat"]
    assert unsure.names(unsure.decide("e-admissibility")) == [("cat", "dog"), ("cat",)]
    cost = torch.tensor([[0.0, 1.0, 50.0], [1.0, 1.0, 0.0]])
    actions = answer.decide("maximality", cost)
    assert actions.tolist() == [[False, True], [False, True]]
    with pytest.raises(
        ShapeError, match=r"does not match the classes; got shape \(2, 2\); expected \(…, 3\)"
    ):
        answer.names(actions)
    with pytest.raises(ShapeError, match="does not match the classes"):
        answer.names(actions.repeat(3, 1))  # as many entries as whole rows of classes would have
    with pytest.raises(RandomSetError, match="unknown criterion; got upper"):
        answer.reject(0.5, by="upper")


def test_properties_are_cached(answer):
    assert answer.belief is answer.belief
    assert "upper" not in vars(answer)
    assert answer.upper is answer.upper
