"""The random-set head: layers, initial beliefs, files of another budget."""

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetHead
from randomset.errors import BudgetError, RandomSetError, ShapeError


class TestHead:
    budget = Budget.from_sets([{0, 1}, {0, 1, 2, 3}], 4)

    def test_is_linear_by_default(self):
        head = RandomSetHead(8, self.budget)
        linear = head.layers[0]
        assert isinstance(linear, nn.Linear)
        features = torch.randn(3, 5, 8)
        assert torch.equal(head(features), linear(features))
        assert linear.weight.abs().max() < 0.1 / 8**0.5
        assert head(features).shape == (3, 5, 6)

    def test_the_papers_layers(self):
        head = RandomSetHead(2048, self.budget, hidden=(1024, 512))
        shapes = [(m.in_features, m.out_features) for m in head.layers if isinstance(m, nn.Linear)]
        assert shapes == [(2048, 1024), (1024, 512), (512, 6)]
        assert sum(isinstance(m, nn.ReLU) for m in head.layers) == 2

    def test_starts_at_the_beliefs_of_ignorance(self):
        head = RandomSetHead(8, self.budget, hidden=(4,))
        assert head.layers[-1].bias.sigmoid().tolist() == pytest.approx([0.25] * 4 + [0.5, 0.999], abs=1e-6)

    def test_dropout_acts_in_training_only(self):
        head = RandomSetHead(64, self.budget, dropout=0.5)
        x = torch.ones(1, 64)
        assert not torch.equal(head.train()(x), head(x))
        assert torch.equal(head.eval()(x), head(x))

    def test_a_state_of_another_budget_is_refused(self):
        other = RandomSetHead(8, Budget.from_sets([{0, 2}, {0, 1, 2, 3}], 4))
        with pytest.raises(BudgetError, match="another budget"):
            RandomSetHead(8, self.budget).load_state_dict(other.state_dict())

    def test_mistakes(self):
        with pytest.raises(BudgetError, match=r"must be a randomset\.Budget; got int"):
            RandomSetHead(8, 10)
        with pytest.raises(RandomSetError, match="positive integers"):
            RandomSetHead(8, self.budget, hidden=(0,))
        with pytest.raises(ShapeError, match=r"\(2, 7\).*\(…, 8\)"):
            RandomSetHead(8, self.budget)(torch.zeros(2, 7))
