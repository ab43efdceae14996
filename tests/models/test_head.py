"""The random-set head: layers, initial beliefs, a fit to features, files of another budget."""

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetHead, RandomSetLoss
from randomset.errors import BudgetError, RandomSetError, ShapeError
from randomset.models.head import fit_head

BUDGET = Budget.from_sets([{"a", "b"}], "abc")


def data(scale=1.0, shift=0.0):
    torch.manual_seed(0)
    labels = torch.arange(300) % 3
    features = torch.nn.functional.one_hot(labels, 3).float() @ torch.randn(3, 8) + 0.3 * torch.randn(300, 8)
    return scale * features + shift, labels


def fitted(features, labels, hidden=(), **options):
    torch.manual_seed(1)
    head = RandomSetHead(features.shape[1], BUDGET, hidden)
    fit_head(head, features, labels, RandomSetLoss(BUDGET), **options)
    return head


class TestFit:
    """A head that is fitted to the features of a plain network."""

    def test_separable_features_are_learned(self):
        features, labels = data()
        for hidden in ((), (16,)):
            belief = fitted(features, labels, hidden)(features).sigmoid()
            assert (belief[:, :3].argmax(1) == labels).float().mean() > 0.98
            assert belief[labels == 2, 3].mean() < 0.1 < 0.9 < belief[labels == 0, 3].mean()

    def test_the_scale_of_the_features_does_not_matter(self):
        features, labels = data()
        belief = fitted(features, labels)(features).sigmoid()
        moved, _ = data(scale=1000.0, shift=5000.0)
        same = fitted(moved, labels)(moved).sigmoid()
        assert (same.argmax(1) == belief.argmax(1)).float().mean() > 0.98
        assert (same - belief).abs().mean() < 0.05

    def test_constant_features(self):
        features, labels = data()
        features[:, 0] = 3.0
        assert fitted(features, labels)(features).isfinite().all()

    def test_samples_without_weight_do_not_count(self):
        features, labels = data()
        wrong = labels.clone()
        wrong[150:] = 0
        weights = (torch.arange(300) < 150).float()
        belief = fitted(features, wrong, weights=weights)(features).sigmoid()
        assert (belief[:, :3].argmax(1) == labels).float().mean() > 0.98

    def test_it_is_repeatable_and_leaves_the_random_state(self):
        features, labels = data()
        first = fitted(features, labels)
        state = torch.get_rng_state()
        fit_head(RandomSetHead(8, BUDGET), features, labels, RandomSetLoss(BUDGET))
        torch.set_rng_state(state)
        assert torch.equal(first.layers[-1].weight, fitted(features, labels).layers[-1].weight)
        assert first.training
        assert all(parameter.grad is None for parameter in first.parameters())


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
