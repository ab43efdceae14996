"""Epinets: the literal definition, and what learns."""

import copy

import torch

from tests.models.conftest import X, Y, make


class TestEpinet:
    def test_the_prior_is_fixed_and_features_are_detached(self):
        model = make("epinet").train()
        before = copy.deepcopy(model.prior.state_dict())
        model.default_loss()(model(X), Y).backward()
        assert all(p.grad is None for p in model.prior.parameters())
        assert all(p.grad is not None for p in model.learned.parameters())
        assert any(p.grad.abs().max() > 0 for p in model.backbone.parameters())
        features = model.features(X).detach().requires_grad_()
        model.logits(features, model.indices).sum().backward()
        base = len(model.indices) * model.layer.weight.sum(0).expand_as(features)
        assert torch.allclose(features.grad, base, atol=1e-4)  # through the base layer alone
        for name, tensor in model.prior.state_dict().items():
            assert torch.equal(tensor, before[name])

    def test_without_an_index_it_is_its_base(self):
        model = make("epinet").eval()
        features = model.features(X)
        assert torch.allclose(model.logits(features, torch.zeros(1, 3))[0], model.layer(features))

    def test_the_literal_definition(self):
        model = make("epinet").eval()
        features, z = model.features(X[:1]), torch.tensor([[0.5, -1.0, 2.0]])
        both = torch.cat((features, z), 1)
        expected = model.layer(features)[0].clone()
        for small, scale in ((model.learned, 1.0), (model.prior, model.prior_scale)):
            matrix = small(both).reshape(3, 3)
            expected = expected + scale * matrix @ z[0]
        assert torch.allclose(model.logits(features, z)[0, 0], expected, atol=1e-5)
