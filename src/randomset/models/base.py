"""What the methods that RS-NN is compared with have in common."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from randomset._core.batches import (
    as_floating,
    call_with,
    cut_into_batches,
    evaluating,
    feature_tensor,
    flat_features,
    inputs_alone,
    moved,
    width_of,
)
from randomset.errors import RandomSetError, ShapeError

__all__ = ["Baseline", "Uncertain", "from_samples"]

Uncertain = tuple[Tensor, dict[str, Tensor]]
"""Class probabilities (B × N), and scores of uncertainty by name (B), higher for less sure."""


class Baseline(nn.Module):
    """A backbone, what follows it, and how its outputs become probabilities and uncertainties.

    Args:
        backbone: a module that yields features (B × F), maps or tokens.
        num_classes: N.
        in_features: F, if the backbone does not tell it as `num_features` or by its last layer.
        preprocess: a module that sees the inputs first.
    """

    method: ClassVar[str]
    """The name that a user types."""

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        *,
        in_features: int | None = None,
        preprocess: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(backbone, nn.Module):
            raise RandomSetError("the backbone is no torch module", got=type(backbone).__name__)
        if num_classes < 2:
            raise RandomSetError("there is nothing to classify", got=num_classes, expected="two or more")
        self.preprocess, self.backbone = preprocess, backbone
        self.in_features, self.num_classes = in_features or width_of(backbone), num_classes
        self.notes: dict[str, Any] = {}
        """Anything that JSON can hold, saved with the model, such as what it was trained on."""

    @property
    def options(self) -> dict[str, Any]:
        """The arguments beside backbone and classes, as JSON can keep them."""
        return {}

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def features(self, inputs: Any) -> Tensor:
        """Return what the backbone yields, as (B × F)."""
        if self.preprocess is not None:
            inputs = self.preprocess(inputs)
        output = feature_tensor(call_with(self.backbone, inputs))  # without an auxiliary one
        return flat_features(output, channels_first=output.dim() > 3)

    def forward(self, inputs: Any) -> Tensor:
        """Return what the loss takes."""
        raise NotImplementedError

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Turn outputs into class probabilities (B × N)."""
        return outputs.float().softmax(-1)

    def uncertain(self, inputs: Any) -> Uncertain:
        """Return probabilities and scores of a batch that is on the device already."""
        return self.probabilities(self(inputs)), {}

    def default_loss(self) -> nn.Module:
        """Return the loss that trains it."""
        return nn.CrossEntropyLoss()

    @torch.no_grad()
    def predict(self, inputs: Any, *, batch_size: int = 256) -> Uncertain:
        """Predict in evaluation mode: probabilities (n × N), scores by name (n), on the CPU.

        Inputs are a tensor or an array, cut into batches of `batch_size`; a data set; or a data loader or any
        other iterable of batches, from which labels are set aside. The same inputs give the same answer,
        whatever else is in the batch.
        """
        dtype = next(self.parameters()).dtype
        batches, _, _ = cut_into_batches(inputs, batch_size)
        found: list[Uncertain] = []
        with evaluating(self):
            for batch in batches:
                given = as_floating(inputs_alone(batch), dtype)
                p, scores = self.uncertain(moved(given, self.device))
                found.append((p.cpu(), {name: score.cpu() for name, score in scores.items()}))
        if not found:
            raise ShapeError("there is nothing to predict", got="no batch", expected="at least one input")
        names = found[0][1]
        return torch.cat([p for p, _ in found]), {
            name: torch.cat([scores[name] for _, scores in found]) for name in names
        }


def from_samples(samples: Tensor) -> Uncertain:
    """Average sampled class probabilities (S × B × N); the mutual information tells how much they disagree.

    I = H(mean p) − mean H(p), in bits

    >>> certain, torn = torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> from_samples(torch.stack((certain, torn), 1))[1]["mutual information"]
    tensor([0., 1.])
    """
    mean = samples.mean(0)
    total, each = _bits(mean), _bits(samples).mean(0)
    return mean, {"mutual information": (total - each).clamp_min(0)}


def _bits(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1) / torch.log(torch.tensor(2.0, device=p.device))
