"""What the methods that RS-NN is compared with have in common."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from randomset.budgeting.batches import as_floating, call_with, evaluating, flat_features, moved
from randomset.errors import RandomSetError, ShapeError

__all__ = ["Baseline", "Uncertain", "from_samples"]

Uncertain = tuple[Tensor, dict[str, Tensor]]
"""Class probabilities (B × N), and scores of uncertainty by name (B), higher for less sure."""


class Baseline(nn.Module):
    """A backbone, what follows it, and how its outputs become probabilities and uncertainties.

    Args:
        backbone: a module that yields features (B × F), maps or tokens.
        num_classes: N.
        in_features: F, if the backbone does not tell it as `num_features`.
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
        width = in_features or getattr(backbone, "num_features", None)
        if not isinstance(width, int):
            raise RandomSetError(
                "the backbone does not tell how many features it yields",
                got=type(backbone).__name__,
                remedy="Give in_features=…",
            )
        if num_classes < 2:
            raise RandomSetError("there is nothing to classify", got=num_classes, expected="two or more")
        self.preprocess, self.backbone = preprocess, backbone
        self.in_features, self.num_classes = width, num_classes
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
        output = call_with(self.backbone, inputs)
        output = output[0] if isinstance(output, tuple) else output  # without an auxiliary one
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

        Tensors and arrays are cut into batches; the same inputs give the same answer, whatever else is in
        the batch.
        """
        dtype = next(self.parameters()).dtype
        given = as_floating(inputs, dtype)
        if isinstance(given, Tensor) and not len(given):
            raise ShapeError("there is nothing to predict", got=f"shape {tuple(given.shape)}")
        found: list[Uncertain] = []
        with evaluating(self):
            for part in given.split(batch_size) if isinstance(given, Tensor) else [given]:
                p, scores = self.uncertain(moved(part, self.device))
                found.append((p.cpu(), {name: score.cpu() for name, score in scores.items()}))
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
