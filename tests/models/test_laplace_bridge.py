"""The Laplace bridge: there and back, its posterior, its prior."""

import numpy as np
import pytest
import torch
from torch import nn

from randomset.errors import RandomSetError
from randomset.models import LaplaceBridge, Softmax
from randomset.models.laplace_bridge import dirichlet_from_gaussian, gaussian_from_dirichlet
from tests.models.conftest import X, Y, laplace, make


class TestLaplaceBridge:
    def test_round_trip_of_the_bridge(self):
        alpha = 0.5 + 20 * torch.rand(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
        assert torch.allclose(dirichlet_from_gaussian(*gaussian_from_dirichlet(alpha)), alpha)

    def test_moments_of_the_logits_of_a_dirichlet(self):
        """The logits of a narrow Dirichlet have the moments of the bridge."""
        alpha = torch.tensor([40.0, 60.0, 100.0], dtype=torch.double)
        torch.manual_seed(0)
        drawn = torch.distributions.Dirichlet(alpha).sample((200_000,)).log()
        drawn = drawn - drawn.mean(1, keepdim=True)
        mean, covariance = gaussian_from_dirichlet(alpha)
        assert torch.allclose(drawn.mean(0), mean, atol=0.01)
        assert torch.allclose(torch.cov(drawn.T), covariance, atol=0.001)

    @pytest.mark.parametrize("scale", [2.0, 5.0, 20.0])
    def test_mean_against_draws_of_the_gaussian(self, scale):
        """Of Gaussians that come from a Dirichlet, the softmax has nearly the Dirichlet's mean."""
        torch.manual_seed(0)
        alpha = scale * torch.tensor([4.0, 1.0, 2.0, 1.5], dtype=torch.double)
        mean, covariance = gaussian_from_dirichlet(alpha)
        root = torch.linalg.cholesky(covariance + 1e-9 * torch.eye(4))
        drawn = (mean + torch.randn(200_000, 4, dtype=torch.double) @ root.T).softmax(1)
        assert torch.allclose(alpha / alpha.sum(), drawn.mean(0), atol=0.03)
        spread = (drawn.var(0) / (alpha * (alpha.sum() - alpha))) * alpha.sum() ** 2 * (alpha.sum() + 1)
        assert torch.allclose(spread, torch.ones(4, dtype=torch.double), atol=0.5)  # the variance, roughly

    def test_the_full_posterior_is_the_inverse_of_the_curvature(self):
        model = laplace("full")
        with torch.no_grad():
            features = nn.functional.pad(model.network.features(X).double(), (0, 1), value=1.0)
            p = model.network.predict(X).probabilities.double()
        curvature = torch.zeros(51, 51, dtype=torch.double)
        for phi, q in zip(features, p, strict=True):
            curvature += torch.kron(torch.outer(phi, phi), torch.diag(q) - torch.outer(q, q))
        expected = torch.linalg.inv(curvature + model.prior_precision * torch.eye(51, dtype=torch.double))
        assert torch.allclose(model.covariance, expected, rtol=1e-4, atol=1e-6)
        _, covariance = model.gaussian(X[:1])
        jacobian = torch.kron(features[:1], torch.eye(3, dtype=torch.double))
        assert torch.allclose(covariance[0], jacobian @ expected @ jacobian.T, rtol=1e-3)

    def test_kronecker_is_exact_where_the_curvature_is(self):
        """With one and the same p for all samples, the curvature is a Kronecker product."""
        kron, full = laplace("kron"), laplace("full")
        for model in (kron, full):
            nn.init.zeros_(model.network.layer.weight)
            nn.init.zeros_(model.network.layer.bias)
            model.fit_posterior([(X[:50], Y[:50]), (X[50:], Y[50:])])
        with torch.no_grad():
            for model in (kron, full):
                model.prior_precision.fill_(1.0)
            full.fit_posterior([(X, Y)])
            kron.prior_precision.copy_(full.prior_precision)
            assert torch.allclose(kron.gaussian(X)[1], full.gaussian(X)[1], rtol=1e-4, atol=1e-8)

    def test_draws_agree_with_the_closed_form(self):
        """The bridge is an approximation: it sees the variances of the logits, not how they go together."""
        closed, drawn = (
            laplace("kron").predict(X).probabilities,
            laplace("kron", 4000).predict(X).probabilities,
        )
        assert (closed - drawn).abs().mean() < 0.1
        sure = drawn.amax(1) - drawn.median(1).values > 0.1
        assert torch.equal(closed.argmax(1)[sure], drawn.argmax(1)[sure])

    @pytest.mark.parametrize("structure", ["kron", "full"])
    def test_the_prior_maximises_the_evidence(self, structure):
        """The evidence of the last layer by its definition, with the covariance of the whole posterior."""
        model = laplace(structure)
        layer, n = model.network.layer, 51
        w = torch.cat((layer.weight.T, layer.bias[None])).detach().double().flatten()

        def curvature():
            with torch.no_grad():
                features = nn.functional.pad(model.network.features(X).double(), (0, 1), value=1.0)
                p = model.network.predict(X).probabilities.double()
            each = torch.diag_embed(p) - p[:, :, None] * p[:, None]
            if structure == "kron":
                return torch.kron(features.T @ features, each.mean(0))
            return torch.einsum("bi,bkl,bj->ikjl", features, each, features).reshape(n, n)

        h = curvature()

        def evidence(log_delta):
            delta = torch.tensor(log_delta).exp().double()
            whole = h + delta * torch.eye(n, dtype=torch.double)
            return (0.5 * (n * delta.log() - torch.logdet(whole) - delta * w @ w)).item()

        grid = np.linspace(-8, 8, 161)
        best = grid[np.argmax([evidence(float(point)) for point in grid])]
        assert float(model.prior_precision.log()) == pytest.approx(best, abs=0.1)

    def test_the_prior_of_scaled_logits_is_that_of_scaled_weights(self):
        cooled, scaled = laplace("kron"), laplace("kron")
        cooled.network.temperature.fill_(2.0)
        with torch.no_grad():
            scaled.network.layer.weight.div_(2)
            scaled.network.layer.bias.div_(2)
        one, other = cooled.fit_posterior([(X, Y)]), scaled.fit_posterior([(X, Y)])
        assert one == pytest.approx(other, rel=1e-3)

    def test_uncertainty_grows_far_away(self):
        model = laplace("kron")
        near, far = model.predict(X), model.predict(30 * X)
        assert far.scores["mutual information"].mean() > near.scores["mutual information"].mean()

    def test_mistakes(self):
        with pytest.raises(RandomSetError, match="'kron' or 'full'"):
            LaplaceBridge(make("softmax"), "diag")
        with pytest.raises(RandomSetError, match="too large"):
            LaplaceBridge(Softmax(nn.Linear(2, 9000), 3, in_features=9000), "full")
        with pytest.raises(RandomSetError, match="labelled data are empty"):
            LaplaceBridge(make("softmax")).fit_posterior([])
        with pytest.raises(RandomSetError, match="posterior has not been fitted"):
            LaplaceBridge(make("softmax")).predict(X)
        with pytest.raises(RandomSetError, match="expected a Softmax network; got Epinet"):
            LaplaceBridge(make("epinet"))
        with pytest.raises(RandomSetError, match="expected a Softmax network; got Linear"):
            LaplaceBridge(nn.Linear(3, 3))
        with pytest.raises(RandomSetError, match="samples is out of range"):
            LaplaceBridge(make("softmax"), samples=-1)

    def test_a_data_set_is_cut_into_batches(self):
        one, other = laplace("kron"), laplace("kron")
        other.fit_posterior(torch.utils.data.TensorDataset(X, Y))
        assert torch.allclose(one.predict(X).probabilities, other.predict(X).probabilities, atol=1e-6)
