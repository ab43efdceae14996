"""Tractable function-space variational inference (Rudner et al. 2022), over the last layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from randomset._core.batches import call_with
from randomset.errors import RandomSetError
from randomset.models.base import Classifier
from randomset.models.cross_entropy import CrossEntropy
from randomset.models.prediction import Prediction
from randomset.models.storage import register

if TYPE_CHECKING:
    from randomset.models.training_job import TrainingJob

__all__ = ["FSVI", "function_space_kl"]

_LOG_SCALE_RATE = 30.0
"""Learning rate of the log standard deviations relative to that of the means, under Adam."""


@register("fsvi")
class FSVI(Classifier):
    """A last layer with a mean-field Gaussian over its weights, regularised by a prior in function space.

    L = E_q[−log p(y | x)] + KL(q(f(X_C)) ‖ p(f(X_C))) / n

    The KL divergence compares the distributions of the logits at context points X_C, not of the weights. With
    fixed backbone features, the logits are linear in the weights, so both distributions are Gaussian and the
    linearisation is exact. Context points come from each training batch unless `context` is given.

    Args:
        backbone: as for every classifier.
        num_classes: N.
        num_train: n, the number of training samples.
        context: inputs to use as context points; by default, inputs of each batch.
        context_size: number of context points per step.
        prior_scale: standard deviation of a weight under the prior.
        samples: number of weight samples averaged over in prediction.
        start_log_scale: initial log standard deviation; the result hardly depends on it, since the standard
            deviations are updated faster than the means.
        options: `in_features` and `preprocess`.
    """

    context: Tensor | None
    noise: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: Any,
        *,
        num_train: int,
        context: Tensor | None = None,
        context_size: int = 16,
        prior_scale: float = 1.0,
        samples: int = 20,
        start_log_scale: float = -4.0,
        **options: Any,
    ) -> None:
        super().__init__(backbone, num_classes, **options)
        if min(num_train, context_size, samples) < 1 or not prior_scale > 0:
            raise RandomSetError(
                "num_train, context_size, samples and prior_scale must be positive",
                got=f"num_train {num_train}, context_size {context_size}, samples {samples}, "
                f"prior_scale {prior_scale}",
            )
        self.num_train, self.context_size = num_train, context_size
        self.prior_scale, self.samples = prior_scale, samples
        width = self.in_features + 1
        num_classes = self.num_classes
        start = nn.Linear(self.in_features, num_classes)
        self.mean = nn.Parameter(torch.cat((start.weight.detach().T, start.bias.detach()[None])))
        # 1-D, so that it is exempt from weight decay, which would pull standard deviations towards one.
        self.rho = nn.Parameter(torch.full((width * num_classes,), start_log_scale / _LOG_SCALE_RATE))
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("noise", torch.randn(samples, width, num_classes, generator=generator))
        self.register_buffer("context", context, persistent=False)
        self.divergence = torch.zeros(())
        """KL divergence of the last training batch."""

    @property
    def scale(self) -> Tensor:
        """Standard deviation of every weight, (F + 1) × N."""
        return (_LOG_SCALE_RATE * self.rho).exp().view_as(self.mean)

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's further arguments."""
        names = ("num_train", "context_size", "prior_scale", "samples")
        return {name: getattr(self, name) for name in names}

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return logits (B × N), of freshly drawn weights in training and of the mean weights otherwise."""
        features = nn.functional.pad(self.features(*inputs, **named), (0, 1), value=1.0)
        if not self.training:
            return features @ self.mean
        points = features
        if self.context is not None:
            chosen = torch.randperm(len(self.context))[: self.context_size].to(self.context.device)
            points = nn.functional.pad(self.features(self.context[chosen]), (0, 1), value=1.0)
        chosen = torch.randperm(len(points))[: self.context_size].to(points.device)
        self.divergence = function_space_kl(points[chosen].detach(), self.mean, self.scale, self.prior_scale)
        noise = torch.randn(self.mean.shape).to(features)
        return features @ (self.mean + self.scale * noise)

    def predict_batch(self, inputs: Any) -> Prediction:
        """Average over fixed samples of the weights."""
        features = nn.functional.pad(call_with(self.features, inputs), (0, 1), value=1.0)
        weights = self.mean + self.scale * self.noise
        return Prediction.from_samples(torch.einsum("bf,sfn->sbn", features, weights).float().softmax(-1))

    @classmethod
    def train_options(cls, job: TrainingJob) -> dict[str, Any]:
        """Return `num_train`, by which the divergence is divided."""
        return {"num_train": job.samples}

    def default_loss(self) -> nn.Module:
        """Return the cross-entropy plus the KL divergence."""
        return _WithDivergence(self)


class _WithDivergence(nn.Module):
    def __init__(self, model: FSVI) -> None:
        super().__init__()
        self._model = [model]  # in a list, so that its parameters are not registered here
        self.terms: dict[str, Tensor] = {}

    def forward(self, outputs: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        model = self._model[0]
        fit = CrossEntropy()(outputs, labels, weight)
        if not model.training:
            return fit
        divergence = model.divergence / model.num_train
        model.divergence = model.divergence.detach()  # a tensor with a graph cannot be deep-copied
        self.terms = {"nll": fit.detach(), "divergence": divergence.detach()}
        return fit + divergence


def function_space_kl(
    features: Tensor, mean: Tensor, scale: Tensor, prior_scale: float, jitter: float = 1e-3
) -> Tensor:
    """KL divergence between the logits of two last layers at context points, summed over the classes.

    q: w ~ N(mean, scale²), p: w ~ N(0, prior_scale²); logits are φᵀ w, so at the points Φ (M × F) and for
    each class KL = ½ [tr(S_p⁻¹ S_q) + mᵀ S_p⁻¹ m − M + log |S_p| − log |S_q|], with m = Φ mean and
    S = Φ diag(σ²) Φᵀ + jitter · I. (M × F), (F × N), (F × N) → scalar

    >>> points, w = torch.eye(2), torch.zeros(2, 3)
    >>> round(function_space_kl(points, w, torch.ones(2, 3), 1.0).item(), 6)
    0.0
    """
    features, mean, scale = features.double(), mean.double(), scale.double()
    eye = torch.eye(len(features), dtype=torch.double, device=features.device)
    prior = prior_scale**2 * features @ features.T + jitter * eye
    root = torch.linalg.cholesky(prior)
    own = torch.einsum("mf,fn,lf->nml", features, scale**2, features) + jitter * eye
    own_root = torch.linalg.cholesky(own)
    shift = torch.linalg.solve_triangular(root, features @ mean, upper=False)
    ratio = torch.linalg.solve_triangular(root.expand_as(own_root), own_root, upper=False)
    logs = root.diagonal().log().sum() - own_root.diagonal(dim1=1, dim2=2).log().sum(1)
    points, classes = features.shape[0], mean.shape[1]
    return (0.5 * ((ratio**2).sum() + (shift**2).sum() - points * classes) + logs.sum()).to(torch.float32)
