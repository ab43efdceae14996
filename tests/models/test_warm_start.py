"""The start of a head: fitted to the features of a plain network."""

import torch

from randomset import Budget, RandomSetLoss
from randomset.models import RandomSetHead
from randomset.models.warm_start import fit_head

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
