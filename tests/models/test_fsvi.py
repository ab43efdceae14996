"""Function-space variational inference: the divergence, context points, deviations."""

import pytest
import torch
from torch import nn

from randomset.models import FSVI
from randomset.models.fsvi import function_space_kl
from randomset.training import fit
from tests.models.conftest import X, Y, body, make


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
