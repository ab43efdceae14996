"""Last-layer Laplace approximation with the Laplace bridge to a Dirichlet (Hobbhahn et al. 2022): LB-BNN."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from randomset._core.batches import as_floating, call_with, evaluating, inputs_alone, labelled_batches, moved
from randomset.errors import RandomSetError
from randomset.models.base import Classifier
from randomset.models.prediction import Prediction, entropy_bits
from randomset.models.softmax import Softmax
from randomset.models.storage import register

if TYPE_CHECKING:
    from randomset.models.storage import Builder
    from randomset.models.training_job import TrainingJob

__all__ = ["LaplaceBridge", "dirichlet_from_gaussian", "gaussian_from_dirichlet"]

_MAX_WEIGHTS = 20_000  # the full covariance of more last-layer weights does not fit into memory


@register("laplace-bridge")
class LaplaceBridge(Classifier):
    """A trained softmax network with a Gaussian posterior over its last layer, converted to Dirichlets.

    The posterior of the weights is N(w_MAP, (H + δ I)⁻¹) with the curvature H = Σ_n φ φᵀ ⊗ (diag p − p pᵀ)
    over the training data, or its Kronecker approximation n · E[φ φᵀ] ⊗ E[diag p − p pᵀ]; δ maximises
    the marginal likelihood. The logits of an input are then Gaussian, and the bridge gives a Dirichlet:

    α_k = (1 − 2/N + exp(μ_k)/N² · Σ_l exp(−μ_l)) / Σ_kk

    With `samples=0`, the prediction is the mean of the Dirichlet; otherwise, logits are sampled and their
    softmax is averaged (Bayesian model averaging).

    Args:
        network: a trained `Softmax`; it is not modified.
        structure: "kron" or "full".
        samples: number of samples to average, as in the paper; 0 uses the closed form.
    """

    has_backbone = False
    base_method = "softmax"
    inputs_basis: Tensor
    inputs_scale: Tensor
    outputs_basis: Tensor
    outputs_scale: Tensor
    covariance: Tensor
    prior_precision: Tensor
    draws: Tensor

    def __init__(
        self, network: Softmax, structure: Literal["kron", "full"] = "kron", samples: int = 100
    ) -> None:
        if not isinstance(network, Softmax):
            raise RandomSetError("expected a Softmax network", got=type(network).__name__)
        # the network has the backbone and preprocessing, which must not be stored twice
        super().__init__(torch.nn.Identity(), network.num_classes, in_features=network.in_features)
        if samples < 0:
            raise RandomSetError("samples is out of range", got=samples, expected="0 or more")
        if structure not in ("kron", "full"):
            raise RandomSetError("unknown structure", got=structure, expected="'kron' or 'full'")
        width, n = network.in_features + 1, network.num_classes
        if structure == "full" and width * n > _MAX_WEIGHTS:
            raise RandomSetError(
                "the full covariance is too large",
                got=f"{width} × {n} weights",
                expected=f"at most {_MAX_WEIGHTS}",
                remedy='Use structure="kron"',
            )
        self.network = network
        self.structure, self.samples = structure, samples
        kron = structure == "kron"
        self.register_buffer("inputs_basis", torch.eye(width if kron else 0, dtype=torch.double))
        self.register_buffer("inputs_scale", torch.zeros(width if kron else 0, dtype=torch.double))
        self.register_buffer("outputs_basis", torch.eye(n if kron else 0, dtype=torch.double))
        self.register_buffer("outputs_scale", torch.zeros(n if kron else 0, dtype=torch.double))
        size = 0 if kron else width * n
        self.register_buffer("covariance", torch.zeros(size, size, dtype=torch.double))
        self.register_buffer("prior_precision", torch.tensor(torch.nan, dtype=torch.double))
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("draws", torch.randn(samples, n, generator=generator, dtype=torch.double))

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's further arguments."""
        return {"structure": self.structure, "samples": self.samples}

    @torch.no_grad()
    def fit_posterior(self, batches: Iterable[Any]) -> float:
        """Fit the posterior in one pass over the training data; return the prior precision δ it chose.

        The data are batches of (inputs, labels), such as a data loader's, or a data set.
        """
        width, n = self.in_features + 1, self.num_classes
        kron = self.structure == "kron"
        left = torch.zeros(width, width, dtype=torch.double)
        right = torch.zeros(n, n, dtype=torch.double)
        whole = torch.zeros(0 if kron else width * n, 0 if kron else width * n, dtype=torch.double)
        seen = 0
        with evaluating(self.network):
            for batch in labelled_batches(batches, 256):
                inputs = as_floating(inputs_alone(batch), torch.float32)
                features, logits = self._outputs(moved(inputs, self.device))
                features, p = features.cpu(), logits.softmax(-1).cpu()
                curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
                seen += len(p)
                if kron:
                    left += features.T @ features
                    right += curvature.sum(0)
                else:
                    whole += torch.einsum("bi,bkl,bj->ikjl", features, curvature, features).reshape_as(whole)
        if not seen:
            raise RandomSetError("no training data", got="no batches")
        layer = self.network.layer
        squares = float((layer.weight.double() ** 2).sum() + (layer.bias.double() ** 2).sum())
        squares /= float(self.network.temperature) ** 2  # weights of the temperature-scaled logits
        if kron:
            scale_in, basis_in = torch.linalg.eigh(left / seen)
            scale_out, basis_out = torch.linalg.eigh(right / seen)
            self.inputs_scale.copy_(scale_in.clamp_min(0) * seen)
            self.outputs_scale.copy_(scale_out.clamp_min(0))
            self.inputs_basis.copy_(basis_in)
            self.outputs_basis.copy_(basis_out)
            spectrum = torch.outer(self.inputs_scale, self.outputs_scale).flatten().cpu()
        else:
            spectrum, basis = torch.linalg.eigh(whole)
            spectrum = spectrum.clamp_min(0)
        self.prior_precision.fill_(_best_precision(spectrum, squares))
        if not kron:
            self.covariance.copy_(basis / (spectrum + self.prior_precision.cpu()) @ basis.T)
        return float(self.prior_precision)

    def features(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the network's features (B × F)."""
        return self.network.features(*inputs, **named)

    def _outputs(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Return features with a constant 1 appended, and logits, in double precision."""
        features = call_with(self.network.features, inputs)
        logits = self.network.layer(features).double() / self.network.temperature
        return torch.nn.functional.pad(features.double(), (0, 1), value=1.0), logits

    def gaussian(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Return the mean (B × N) and covariance (B × N × N) of the logits."""
        features, mean = self._outputs(inputs)
        if self.structure == "kron":
            # compute in double even if the model was cast to another precision
            scale_in, scale_out = self.inputs_scale.double(), self.outputs_scale.double()
            along = (features @ self.inputs_basis.double()) ** 2
            spread = along @ (1 / (torch.outer(scale_in, scale_out) + self.prior_precision.double()))
            basis = self.outputs_basis.double()
            return mean, torch.einsum("kj,bj,lj->bkl", basis, spread, basis)
        width, n = self.in_features + 1, self.num_classes
        covariance = self.covariance.double().view(width, n, width, n)
        return mean, torch.einsum("bi,ikjl,bj->bkl", features, covariance, features)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the logarithm of the mean probabilities (B × N)."""
        p = self.predict_batch(named or inputs[0]).probabilities
        return p.clamp_min(torch.finfo(torch.float32).tiny).log()

    def predict_batch(self, inputs: Any) -> Prediction:
        """Return the closed form, or the average over samples."""
        if self.prior_precision.isnan():
            raise RandomSetError(
                "the posterior has not been fitted",
                remedy="Call fit_posterior(batches) with the training data first",
            )
        mean, covariance = self.gaussian(inputs)
        if self.samples:
            root = torch.linalg.cholesky(covariance + 1e-9 * torch.eye(self.num_classes).to(covariance))
            logits = mean + torch.einsum("bkl,sl->sbk", root, self.draws.double())
            return Prediction.from_samples(logits.softmax(-1))
        alpha = dirichlet_from_gaussian(mean, covariance)
        total = alpha.sum(-1, keepdim=True)
        p = alpha / total
        expected = -(p * (torch.digamma(alpha + 1) - torch.digamma(total + 1))).sum(-1)
        information = entropy_bits(p) - expected / np.log(2)
        return Prediction(p.float(), {"mutual information": information.clamp_min(0).float()})

    @classmethod
    def train_on(cls, job: TrainingJob) -> LaplaceBridge:
        """Train a softmax network unless one is given, and fit the posterior."""
        base: Any = job.base or Softmax.train_on(job)
        bridge = cls(base)
        bridge.fit_posterior(job.batches())
        return bridge

    def description(self) -> dict[str, Any]:
        """Return the description of the network, and the options."""
        return {"method": self.method, "network": self.network.description(), "options": self.options}

    @classmethod
    def from_description(cls, description: dict[str, Any], builder: Builder) -> LaplaceBridge:
        """Build the network with an empty posterior, to be loaded from the weights."""
        network: Any = builder.model(description["network"])
        return cls(network, **description["options"])


def dirichlet_from_gaussian(mean: Tensor, covariance: Tensor) -> Tensor:
    """The Laplace bridge: means (B × N) and covariances (B × N × N) of logits → parameters α (B × N).

    Softmax is invariant to a constant added to all logits, so the Gaussian is first conditioned on logits
    that sum to zero.

    >>> alpha = torch.tensor([[2.0, 3.0, 5.0]], dtype=torch.double)
    >>> dirichlet_from_gaussian(*gaussian_from_dirichlet(alpha)).round(decimals=6)
    tensor([[2., 3., 5.]], dtype=torch.float64)
    """
    n = mean.shape[-1]
    across = covariance.sum(-1)
    total = across.sum(-1, keepdim=True)
    free = total > 1e-12 * covariance.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True).clamp_min(1e-300)
    share = torch.where(free, across / total.where(free, torch.ones_like(total)), 0.0)
    mean = mean - share * mean.sum(-1, keepdim=True)
    mean = mean - mean.mean(-1, keepdim=True)
    variance = (covariance.diagonal(dim1=-2, dim2=-1) - share * across).clamp_min(1e-12)
    # exp(μ_k) Σ_l exp(−μ_l) in log space: the logits of a confident network would overflow
    product = torch.exp((mean + torch.logsumexp(-mean, -1, keepdim=True)).clamp_max(600))
    return (1 - 2 / n + product / n**2) / variance


def gaussian_from_dirichlet(alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse bridge: the Laplace approximation of a Dirichlet in the softmax basis.

    μ_k = log α_k − mean log α,  Σ_kl = [k = l]/α_k − (1/α_k + 1/α_l − mean 1/α)/N
    """
    n = alpha.shape[-1]
    mean = alpha.log() - alpha.log().mean(-1, keepdim=True)
    inverse = 1 / alpha
    middle = inverse.mean(-1, keepdim=True)[..., None]
    covariance = torch.diag_embed(inverse) - (inverse[..., :, None] + inverse[..., None, :] - middle) / n
    return mean, covariance


def _best_precision(spectrum: Tensor, squares: float) -> float:
    """Maximise log p(D | δ) = const + ½ [P log δ − Σ log(h + δ) − δ |w|²] over δ."""
    from scipy.optimize import minimize_scalar

    values = spectrum.double().numpy()

    def negative(log_delta: float) -> float:
        delta = np.exp(log_delta)
        return float(np.log(values + delta).sum() - len(values) * log_delta + delta * squares)

    return float(np.exp(minimize_scalar(negative, bounds=(-12, 12), method="bounded").x))
