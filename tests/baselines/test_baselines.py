"""The methods that RS-NN is compared with: one contract for all, and the mathematics of each."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from randomset.baselines import (
    FSVI,
    Ensemble,
    Epinet,
    Evidential,
    LaplaceBridge,
    MCDropout,
    Softmax,
)
from randomset.baselines.baseline import from_samples
from randomset.baselines.fsvi import function_space_kl
from randomset.baselines.laplace_bridge import dirichlet_from_gaussian, gaussian_from_dirichlet
from randomset.errors import RandomSetError
from randomset.evaluation.robustness import attack_rows
from randomset.nn import backbones
from randomset.training import fit
from randomset.training.rival_storage import load_model, save_rival


def data(samples=90, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % 3
    centres = torch.tensor([[0.0, 3.0], [3.0, -2.0], [-3.0, -2.0]])
    return centres[labels] + torch.randn(samples, 2, generator=generator), labels


X, Y = data()


def body(seed=0):
    torch.manual_seed(seed)
    return backbones.mlp(2, (16,))


def laplace(structure, samples=0):
    torch.manual_seed(1)
    model = LaplaceBridge(Softmax(body(), 3).eval(), structure, samples)
    model.fit_posterior([(X, Y)])
    return model


MAKERS = {
    "softmax": lambda: Softmax(body(), 3),
    "mc-dropout": lambda: MCDropout(body(), 3),
    "evidential": lambda: Evidential(body(), 3),
    "ensemble": lambda: Ensemble([Softmax(body(seed), 3) for seed in range(3)]),
    "epinet": lambda: Epinet(body(), 3),
    "fsvi": lambda: FSVI(body(), 3, num_train=90),
    "laplace-bridge": lambda: laplace("kron"),
    "laplace-bridge full": lambda: laplace("full"),
    "laplace-bridge sampled": lambda: laplace("kron", 15),
}
SCORES = {
    "softmax": set(),
    "evidential": {"vacuity"},
}


def make(name):
    torch.manual_seed(5)
    return MAKERS[name]()


@pytest.mark.parametrize("name", MAKERS)
class TestContract:
    def test_probabilities_and_scores(self, name):
        p, scores = make(name).predict(X)
        assert p.shape == (90, 3)
        assert p.dtype == torch.float32
        assert torch.allclose(p.sum(1), torch.ones(90), atol=1e-5)
        assert (p >= 0).all()
        assert set(scores) == SCORES.get(name, {"mutual information"})
        assert all(score.shape == (90,) and score.isfinite().all() for score in scores.values())
        assert all((score >= 0).all() for score in scores.values())

    def test_the_same_answer_every_time_and_in_every_batch(self, name):
        model = make(name)
        p, scores = model.predict(X)
        again = model.predict(X)
        assert torch.equal(p, again[0])
        parts = [model.predict(part) for part in X.split(7)]
        assert torch.allclose(p, torch.cat([part[0] for part in parts]), atol=1e-5)
        for key, score in scores.items():
            assert torch.allclose(score, torch.cat([part[1][key] for part in parts]), atol=1e-4)

    def test_nothing_to_predict(self, name):
        for nothing in (X[:0], []):
            with pytest.raises(RandomSetError, match="nothing to predict"):
                make(name).predict(nothing)

    def test_anything_that_gives_batches(self, name):
        model, data = make(name), TensorDataset(X, Y)
        p, scores = model.predict(X)
        for inputs in (X.numpy(), data, DataLoader(data, 32), [(X[:50], Y[:50]), X[50:]], iter(X.split(40))):
            found, own = model.predict(inputs)
            assert torch.allclose(found, p, atol=1e-5)
            for key, score in scores.items():
                assert torch.allclose(own[key], score, atol=1e-4)

    def test_modes_come_back(self, name):
        model = make(name).train()
        model.predict(X)
        assert model.training

    def test_weights_carry_everything(self, name):
        first, second = make(name), make(name)
        with torch.no_grad():
            for tensor in second.state_dict().values():
                tensor.add_(1.0) if tensor.is_floating_point() else None
        assert not torch.equal(first.predict(X)[0], second.predict(X)[0])
        second.load_state_dict(first.state_dict())
        assert torch.equal(first.predict(X)[0], second.predict(X)[0])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_other_precision_and_device(self, name, dtype):
        model = make(name).to("cpu", dtype)
        assert model.device.type == "cpu"
        p, _ = model.predict(X.to(dtype))
        tolerance = 0.15 if dtype == torch.bfloat16 else 1e-4
        assert torch.allclose(p.float(), make(name).predict(X)[0], atol=tolerance)

    def test_a_copy_after_a_step(self, name):
        model = make(name).train()
        outputs = model(X)
        model.default_loss()(outputs, Y)
        assert torch.equal(copy.deepcopy(model).predict(X)[0], model.predict(X)[0])

    def test_files(self, name, tmp_path):
        model = make(name)
        model.notes = {"classes": list("abc")}
        save_rival(model, tmp_path)
        again = load_model(tmp_path)
        assert (type(again), again.notes) == (type(model), model.notes)
        assert torch.equal(again.predict(X)[0], model.predict(X)[0])

    @pytest.mark.slow
    def test_scores_grow_away_from_the_data(self, name):
        """Trained for a while, every score is higher between the classes than in their middle."""
        model = make(name).train()
        for part in [*getattr(model, "members", []), getattr(model, "network", model)]:
            if isinstance(part, (Ensemble, LaplaceBridge)):
                continue
            loss = part.train().default_loss()
            optimiser = torch.optim.Adam([p for p in part.parameters() if p.requires_grad], 0.01)
            for step in range(80):
                torch.manual_seed(step)
                optimiser.zero_grad()
                loss(part(X), Y).backward()
                optimiser.step()
        if isinstance(model, LaplaceBridge):
            model.fit_posterior([(X, Y)])
        middle = torch.tensor([[0.0, 3.0], [3.0, -2.0], [-3.0, -2.0]])
        between = torch.tensor([[0.1, -0.4], [1.5, 0.5], [-1.5, 0.5]])
        for score, value in model.predict(between)[1].items():
            assert value.mean() > model.predict(middle)[1][score].mean(), score


@pytest.mark.parametrize("name", ["softmax", "mc-dropout", "evidential", "epinet", "fsvi"])
def test_it_can_be_trained(name):
    """Steps down the gradient of its loss make that loss smaller; the others are made of trained parts."""
    model = make(name).train()
    loss = model.default_loss()
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05)
    values = []
    for _ in range(30):
        torch.manual_seed(0)
        value = loss(model(X), Y)
        values.append(value.item())
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    assert values[-1] < 0.8 * values[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_attacks_find_a_gradient(name):
    """Images of two pixels, labelled by the model itself: an attack makes it less sure."""
    images = (X / 20 + 0.5).clamp(0, 1).reshape(-1, 1, 1, 2)
    model = make(name).eval()
    labels = model.predict(images.flatten(1))[0].argmax(1)
    rows = attack_rows(nn.Sequential(nn.Flatten(), _Logits(model)), images, labels, (0.4,), progress=False)
    assert rows[0]["accuracy"] == 1
    attacked = next(row for row in rows if row["attack"] == "PGD, own loss")
    assert attacked["1 - maximum"] > rows[0]["1 - maximum"]


class _Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return self.model.probabilities(self.model(inputs)).log()


class TestSamples:
    def test_no_disagreement_no_information(self):
        p = torch.rand(4, 3).softmax(-1)
        mean, scores = from_samples(p.expand(7, 4, 3))
        assert torch.allclose(mean, p)
        assert torch.allclose(scores["mutual information"], torch.zeros(4), atol=1e-6)

    def test_an_ensemble_of_one_is_its_member(self):
        member = make("softmax")
        p, scores = Ensemble([member]).predict(X)
        assert torch.allclose(p, member.predict(X)[0])
        assert scores["mutual information"].abs().max() < 1e-5

    def test_an_ensemble_averages(self):
        ensemble = make("ensemble")
        expected = torch.stack([member.predict(X)[0] for member in ensemble.members]).mean(0)
        assert torch.allclose(ensemble.predict(X)[0], expected)


class TestDropout:
    def test_masks_keep_the_mean(self):
        """What is kept is scaled up: averaged over many masks, features are as they were."""
        model = MCDropout(body(), 3, rate=0.4, samples=20_000)
        assert torch.allclose(model.kept.mean(0), torch.ones(1, 16), atol=0.03)
        assert model.kept.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
        one = MCDropout(body(), 3, rate=0.4, samples=1)
        expected = one.layer(one.features(X) * one.kept[0]).softmax(1)
        assert torch.allclose(one.predict(X)[0], expected)


class TestTemperature:
    def test_few_samples_without_an_error_hardly_move_it(self):
        logits, labels = 5 * torch.eye(3), torch.arange(3)
        assert 0.9 < make("softmax").calibrate(logits, labels) < 1.1

    def test_overconfident_logits_are_cooled(self):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(4000, 3, generator=generator)
        labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
        model = make("softmax")
        assert model.calibrate(3 * logits, labels) == pytest.approx(3, rel=0.1)
        assert torch.allclose(model.probabilities(3 * logits), logits.softmax(1), atol=0.05)


class TestLaplaceBridge:
    def test_there_and_back(self):
        alpha = 0.5 + 20 * torch.rand(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
        assert torch.allclose(dirichlet_from_gaussian(*gaussian_from_dirichlet(alpha)), alpha)

    def test_moments_of_the_logits_of_a_dirichlet(self):
        """Where a Dirichlet is narrow, its logits have the moments that the bridge says."""
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
            p = model.network.predict(X)[0].double()
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
        closed, drawn = laplace("kron").predict(X)[0], laplace("kron", 4000).predict(X)[0]
        assert (closed - drawn).abs().mean() < 0.1
        sure = drawn.amax(1) - drawn.median(1).values > 0.1
        assert torch.equal(closed.argmax(1)[sure], drawn.argmax(1)[sure])

    @pytest.mark.parametrize("structure", ["kron", "full"])
    def test_the_prior_is_the_likeliest_of_a_grid(self, structure):
        """The evidence of the last layer by its definition, with the covariance of the whole posterior."""
        model = laplace(structure)
        layer, n = model.network.layer, 51
        w = torch.cat((layer.weight.T, layer.bias[None])).detach().double().flatten()

        def curvature():
            with torch.no_grad():
                features = nn.functional.pad(model.network.features(X).double(), (0, 1), value=1.0)
                p = model.network.predict(X)[0].double()
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

    def test_far_away_is_less_sure(self):
        model = laplace("kron")
        near, far = model.predict(X), model.predict(30 * X)
        assert far[1]["mutual information"].mean() > near[1]["mutual information"].mean()

    def test_mistakes(self):
        with pytest.raises(RandomSetError, match="'kron' or 'full'"):
            LaplaceBridge(make("softmax"), "diag")
        with pytest.raises(RandomSetError, match="too large"):
            LaplaceBridge(Softmax(nn.Linear(2, 9000), 3, in_features=9000), "full")
        with pytest.raises(RandomSetError, match="no training data"):
            LaplaceBridge(make("softmax")).fit_posterior([])
        with pytest.raises(RandomSetError, match="no posterior yet"):
            LaplaceBridge(make("softmax")).predict(X)
        with pytest.raises(RandomSetError, match="stands on a Softmax network; got Epinet"):
            LaplaceBridge(make("epinet"))
        with pytest.raises(RandomSetError, match="stands on a Softmax network; got Linear"):
            LaplaceBridge(nn.Linear(3, 3))
        with pytest.raises(RandomSetError, match="number of draws"):
            LaplaceBridge(make("softmax"), samples=-1)

    def test_a_data_set_is_cut_into_batches(self):
        one, other = laplace("kron"), laplace("kron")
        other.fit_posterior(torch.utils.data.TensorDataset(X, Y))
        assert torch.allclose(one.predict(X)[0], other.predict(X)[0], atol=1e-6)


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
            found.append(model.predict(X)[1]["mutual information"].mean().item())
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
        p, scores = model.predict(X)
        assert np.allclose(p, 1 / 3)
        assert torch.allclose(scores["vacuity"], torch.ones(90))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Softmax(nn.Flatten(), 3), "not clear how many features"),
        (lambda: Softmax("resnet18", 3), "no torch module; got str"),
        (lambda: Softmax(body(), 1), "nothing to classify"),
        (lambda: Ensemble([]), "needs members"),
        (lambda: Ensemble([Softmax(body(), 3), Softmax(body(), 4)]), "different classes"),
        (lambda: MCDropout(body(), 3, rate=1.5), "dropped"),
        (lambda: Epinet(body(), 3, index_dim=0), "epinet needs"),
        (lambda: FSVI(body(), 3, num_train=0), "num_train 0"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(RandomSetError, match=message):
        call()


def test_backbones_are_understood_as_by_a_random_set_network():
    class Output:
        def __init__(self, hidden):
            self.last_hidden_state = hidden

    class Encoder(nn.Module):
        """Yields tokens in an object, as those of Hugging Face do."""

        num_features = 5

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 5)

        def forward(self, x):
            return Output(self.layer(x)[:, None].expand(-1, 4, -1))

    assert Softmax(nn.Linear(4, 8), 3).in_features == 8
    assert Softmax(nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU()), 3).predict(torch.randn(2, 1, 5, 5))[
        0
    ].shape == (2, 3)
    encoder = Encoder()
    assert torch.allclose(Softmax(encoder, 3).features(X), encoder.layer(X), atol=1e-6)
