"""The plain network ("CNN" in the paper's tables), and its cheap relatives: temperature and dropout."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError
from randomset.models.base import Baseline, Uncertain, from_samples

__all__ = ["MCDropout", "Softmax", "likeliest_temperature"]


class Softmax(Baseline):
    """Logits by a linear layer, divided by a temperature: 1, unless `calibrate` has found a better one.

    >>> model = Softmax(nn.Linear(4, 8), 3, in_features=8)
    >>> model.predict(torch.randn(5, 4))[0].shape
    torch.Size([5, 3])
    """

    method: ClassVar[str] = "softmax"
    temperature: Tensor

    def __init__(self, backbone: nn.Module, num_classes: int, **options: Any) -> None:
        super().__init__(backbone, num_classes, **options)
        self.layer = nn.Linear(self.in_features, num_classes)
        self.register_buffer("temperature", torch.ones(()))

    def forward(self, inputs: Any) -> Tensor:
        """Return logits (B × N)."""
        return self.layer(self.features(inputs))

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return softmax(logits / T)."""
        return (outputs.float() / self.temperature).softmax(-1)

    def calibrate(self, logits: Tensor, labels: Tensor) -> float:
        """Choose the temperature that makes labels of validation data likeliest; return it."""
        found = likeliest_temperature(logits, labels)
        self.temperature.fill_(found)
        return found


def likeliest_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature at which labels are likeliest, with a prior: log T is normal, deviation 0.25.

    Without it, a few samples that are all classified rightly would ask for T → 0.

    >>> sure = torch.tensor([[4.0, 0.0]] * 4000)
    >>> labels = torch.tensor([0, 0, 0, 1] * 1000)      # right three times of four, as softmax(1.1, 0) says
    >>> round(likeliest_temperature(sure, labels), 1)
    3.6
    >>> round(likeliest_temperature(sure[:3], labels[:3]), 2)
    0.99
    """
    from scipy.optimize import minimize_scalar

    values = logits.double()

    def loss(log_t: float) -> float:
        fit = nn.functional.cross_entropy(values / torch.e**log_t, labels, reduction="sum").item()
        return fit + 0.5 * (log_t / 0.25) ** 2

    return float(torch.e ** minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)


class MCDropout(Softmax):
    """Dropout on the last features that stays on in prediction (Gal and Ghahramani 2016).

    The features are computed once and several masks, drawn from a fixed seed, are averaged over. Dropout
    inside the backbone is off in prediction, as always.
    """

    method: ClassVar[str] = "mc-dropout"
    kept: Tensor

    def __init__(
        self, backbone: nn.Module, num_classes: int, *, rate: float = 0.2, samples: int = 20, **options: Any
    ) -> None:
        super().__init__(backbone, num_classes, **options)
        if not 0 < rate < 1 or samples < 1:
            raise RandomSetError("nothing would be dropped", got=f"rate {rate}, {samples} samples")
        self.rate, self.samples = rate, samples
        generator = torch.Generator().manual_seed(0)
        kept = torch.rand(samples, 1, self.in_features, generator=generator) >= rate
        self.register_buffer("kept", kept / (1 - rate))

    @property
    def options(self) -> dict[str, Any]:
        """The arguments beside backbone and classes."""
        return {"rate": self.rate, "samples": self.samples}

    def forward(self, inputs: Any) -> Tensor:
        """Return logits (B × N); in training, features are dropped."""
        return self.layer(nn.functional.dropout(self.features(inputs), self.rate, self.training))

    def uncertain(self, inputs: Any) -> Uncertain:
        """Average over masks that are the same for every input."""
        features = self.features(inputs)
        return from_samples(self.probabilities(self.layer(features * self.kept.to(features))))
