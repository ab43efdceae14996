"""The mathematics of each method: ensembles, dropout, temperature, epinets, FSVI, evidential networks."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from randomset.models import (
    FSVI,
    Ensemble,
    MCDropout,
    Prediction,
    Softmax,
)
from randomset.models.fsvi import function_space_kl
from randomset.models.softmax import softmax_temperature
from randomset.training import fit
from tests.models.baselines import X, Y, body, make


class TestSamples:
    def test_no_disagreement_no_information(self):
        p = torch.rand(4, 3).softmax(-1)
        found = Prediction.from_samples(p.expand(7, 4, 3))
        assert torch.allclose(found.probabilities, p)
        assert torch.allclose(found.scores["mutual information"], torch.zeros(4), atol=1e-6)

    def test_an_ensemble_of_one_is_its_member(self):
        member = make("softmax")
        found = Ensemble([member]).predict(X)
        assert torch.allclose(found.probabilities, member.predict(X).probabilities)
        assert found.scores["mutual information"].abs().max() < 1e-5

    def test_an_ensemble_averages(self):
        ensemble = make("ensemble")
        expected = torch.stack([member.predict(X).probabilities for member in ensemble.members]).mean(0)
        assert torch.allclose(ensemble.predict(X).probabilities, expected)


class TestDropout:
    def test_masks_keep_the_mean(self):
        """What is kept is scaled up: averaged over many masks, features are as they were."""
        model = MCDropout(body(), 3, rate=0.4, samples=20_000)
        assert torch.allclose(model.kept.mean(0), torch.ones(1, 16), atol=0.03)
        assert model.kept.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
        one = MCDropout(body(), 3, rate=0.4, samples=1)
        expected = one.layer(one.features(X) * one.kept[0]).softmax(1)
        assert torch.allclose(one.predict(X).probabilities, expected)


class TestTemperature:
    def test_few_samples_without_an_error_hardly_move_it(self):
        logits, labels = 5 * torch.eye(3), torch.arange(3)
        assert 0.9 < softmax_temperature(logits, labels) < 1.1

    def test_overconfident_logits_are_cooled(self):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(4000, 3, generator=generator)
        labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
        model = Softmax(nn.Identity(), 3, in_features=3)
        with torch.no_grad():
            model.layer.weight.copy_(3 * torch.eye(3))
            model.layer.bias.zero_()
        report = model.calibrate((logits, labels))
        assert report.temperature[0] == pytest.approx(3, rel=0.1)
        assert report.nll[1] < report.nll[0]
        assert report.ece[1] < report.ece[0]
        assert report.changed == 0
        assert torch.allclose(model.predict(logits).probabilities, logits.softmax(1), atol=0.05)


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


class TestFSVI:
    def test_the_divergence_by_the_definition_of_gaussians(self):
        generator = torch.Generator().manual_seed(0)
        points = torch.randn(5, 4, generator=generator, dtype=torch.double)
        mean = torch.randn(4, 3, generator=generator, dtype=torch.double)
        scale = 0.2 + torch.rand(4, 3, generator=generator, dtype=torch.double)
        expected = 0.0
        eye = torch.eye(5, dtype=torch.double)
        for k in range(3):
            q = torch.distributions.MultivariateNormal(
                points @ mean[:, k], points @ torch.diag(scale[:, k] ** 2) @ points.T + 1e-3 * eye
            )
            p = torch.distributions.MultivariateNormal(
                torch.zeros(5, dtype=torch.double), 0.7**2 * points @ points.T + 1e-3 * eye
            )
            expected += torch.distributions.kl_divergence(q, p).item()
        assert function_space_kl(points, mean, scale, 0.7).item() == pytest.approx(expected, rel=1e-5)

    def test_more_context_never_knows_less(self):
        points, mean, scale = torch.randn(6, 4), torch.randn(4, 3), torch.full((4, 3), 0.3)
        few, many = (function_space_kl(points[:n], mean, scale, 1.0) for n in (3, 6))
        assert few <= many + 1e-4

    def test_given_context_points_are_used(self):
        context = 10 * torch.ones(4, 2)
        model = FSVI(body(), 3, num_train=90, context=context, context_size=4).train()
        model(X)
        points = nn.functional.pad(model.features(context), (0, 1), value=1.0).detach()
        expected = function_space_kl(points, model.mean, model.scale, 1.0)
        assert model.divergence.item() == pytest.approx(expected.item(), rel=1e-4)

    @pytest.mark.slow
    def test_where_deviations_end_hardly_depends_on_where_they_start(self):
        """By what they do to predictions: the mutual information on training data."""
        found = []
        for start in (-6.0, -4.0):
            torch.manual_seed(0)
            model = FSVI(body(), 3, num_train=90, start_log_scale=start)
            fit(model, (X, Y), loss=model.default_loss(), epochs=150, batch_size=30, progress=False)
            found.append(model.predict(X).scores["mutual information"].mean().item())
        assert found[0] == pytest.approx(found[1], rel=0.3)
        assert found[0] > 0.005

    def test_the_loss_counts_the_divergence_once_for_all_samples(self):
        model = make("fsvi").train()
        outputs = model(X)
        loss = model.default_loss()
        expected = nn.functional.cross_entropy(outputs, Y) + model.divergence / 90
        assert loss(outputs, Y).item() == pytest.approx(expected.item())
        assert set(loss.terms) == {"nll", "divergence"}
        assert len(list(loss.parameters())) == 0


class TestEvidential:
    def test_the_loss_by_hand(self):
        """α = (3, 1, 1) for class 0: squares and variances, and no misleading evidence; for class 1 some."""
        loss, alpha = make("evidential").default_loss(), torch.tensor([[3.0, 1.0, 1.0]])
        p = np.array([0.6, 0.2, 0.2])
        variance = (p * (1 - p) / 6).sum()
        right = ((np.array([1, 0, 0]) - p) ** 2).sum() + variance
        assert loss(alpha, torch.tensor([0])).item() == pytest.approx(right, rel=1e-5)
        wrong = ((np.array([0, 1, 0]) - p) ** 2).sum() + variance
        dirichlet = torch.distributions.Dirichlet
        kl = torch.distributions.kl_divergence(dirichlet(alpha[0]), dirichlet(torch.ones(3))).item()
        assert loss(alpha, torch.tensor([1])).item() == pytest.approx(wrong + 0.05 * kl, rel=1e-5)

    def test_no_evidence_is_full_vacuity(self):
        model = make("evidential")
        nn.init.zeros_(model.layer.weight)
        nn.init.constant_(model.layer.bias, -50.0)
        found = model.predict(X)
        assert np.allclose(found.probabilities, 1 / 3)
        assert torch.allclose(found.scores["vacuity"], torch.ones(90))
