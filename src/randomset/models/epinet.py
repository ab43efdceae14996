"""Epistemic neural networks with an epinet (Osband et al. 2023)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from randomset._core.batches import call_with
from randomset.errors import RandomSetError
from randomset.models.base import Classifier
from randomset.models.cross_entropy import CrossEntropy
from randomset.models.prediction import Prediction
from randomset.models.storage import register

__all__ = ["Epinet"]


@register("epinet")
class Epinet(Classifier):
    """Base logits plus the output of a small network of a random index z and detached features.

    f(x, z) = μ(x) + σ_η(sg[φ(x)], z) + scale · σ_prior(sg[φ(x)], z), σ(φ, z) = MLP([φ, z])ᵀ z

    The base network and σ_η are trained; the prior σ_prior, a network of the same shape, keeps its random
    initial weights. The paper compares with "3 ensembles", interpreted here as an index of 3 dimensions.
    Predictions average over a fixed set of indices.

    Args:
        backbone: as for every classifier.
        num_classes: N.
        index_dim: dimension of z.
        hidden: width of the small networks.
        prior_scale: scale of the prior network's output.
        samples: number of indices averaged over in prediction.
        draws: number of indices per training batch.
        options: `in_features` and `preprocess`.
    """

    indices: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: Any,
        *,
        index_dim: int = 3,
        hidden: int = 50,
        prior_scale: float = 0.3,
        samples: int = 30,
        draws: int = 3,
        **options: Any,
    ) -> None:
        super().__init__(backbone, num_classes, **options)
        if min(index_dim, hidden, samples, draws) < 1:
            raise RandomSetError(
                "index_dim, hidden, samples and draws must be at least 1",
                got=f"{index_dim}, {hidden}, {samples}, {draws}",
            )
        self.index_dim, self.hidden, self.prior_scale = index_dim, hidden, prior_scale
        self.samples, self.draws = samples, draws
        self.layer = nn.Linear(self.in_features, self.num_classes)
        self.learned = self._small()
        self.prior = self._small().requires_grad_(False)
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("indices", torch.randn(samples, index_dim, generator=generator))

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's further arguments."""
        names = ("index_dim", "hidden", "prior_scale", "samples", "draws")
        return {name: getattr(self, name) for name in names}

    def _small(self) -> nn.Sequential:
        width = self.in_features + self.index_dim
        return nn.Sequential(
            nn.Linear(width, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, self.num_classes * self.index_dim),
        )

    def logits(self, features: Tensor, indices: Tensor) -> Tensor:
        """Return logits for every index: (B × F), (S × D) → (S × B × N)."""
        detached = features.detach().expand(len(indices), -1, -1)
        joined = torch.cat((detached, indices[:, None].expand(-1, len(features), -1)), -1)
        learned, prior = (self._added(network, joined, indices) for network in (self.learned, self.prior))
        return self.layer(features) + (learned + self.prior_scale * prior)

    def _added(self, network: nn.Module, joined: Tensor, indices: Tensor) -> Tensor:
        matrix = network(joined).unflatten(-1, (self.num_classes, self.index_dim))
        return torch.einsum("sbnd,sd->sbn", matrix, indices)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return logits (B × draws × N), for random indices in training and the fixed ones otherwise."""
        features = self.features(*inputs, **named)
        indices = self.indices
        if self.training:
            indices = torch.randn(self.draws, self.index_dim).to(features)
        return self.logits(features, indices).transpose(0, 1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Average over the indices."""
        return outputs.float().softmax(-1).mean(1)

    def predict_batch(self, inputs: Any) -> Prediction:
        """Average over the fixed indices."""
        return Prediction.from_samples(call_with(self, inputs).float().softmax(-1).transpose(0, 1))

    def default_loss(self) -> nn.Module:
        """Return the cross-entropy, averaged over the indices."""
        return _MeanOverIndices()


class _MeanOverIndices(nn.Module):
    def forward(self, outputs: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        draws = outputs.shape[1]
        weight = None if weight is None else weight.repeat_interleave(draws, 0)
        return CrossEntropy()(outputs.flatten(0, 1), labels.repeat_interleave(draws, 0), weight)
