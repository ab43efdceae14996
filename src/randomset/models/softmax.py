"""The softmax network ("CNN" in the paper's tables), with Monte Carlo dropout and temperature scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from randomset._core.batches import call_with
from randomset.errors import RandomSetError
from randomset.models.base import Classifier
from randomset.models.prediction import Prediction
from randomset.models.storage import register
from randomset.models.temperature import CalibrationReport, calibration_report, fit_temperature, label_outputs

if TYPE_CHECKING:
    from randomset.models.training_job import TrainingJob

__all__ = ["MCDropout", "Softmax", "TemperatureScaling", "softmax_temperature"]

_S = TypeVar("_S", bound="Softmax")


@register("softmax")
class Softmax(Classifier):
    """Logits from a linear layer, divided by a temperature, which is 1 unless `calibrate` has fitted it.

    >>> model = Softmax(nn.Linear(4, 8), 3, in_features=8)
    >>> model.predict(torch.randn(5, 4)).probabilities.shape
    torch.Size([5, 3])
    """

    temperature: Tensor

    def __init__(self, backbone: nn.Module, num_classes: Any, **options: Any) -> None:
        super().__init__(backbone, num_classes, **options)
        self.layer = nn.Linear(self.in_features, self.num_classes)
        self.register_buffer("temperature", torch.ones(()))

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return logits (B × N)."""
        return self.layer(self.features(*inputs, **named))

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return softmax(logits / T)."""
        return (outputs.float() / self.temperature).softmax(-1)

    def calibrate(self, data: Any, **options: Any) -> CalibrationReport:
        """Fit the temperature to held-out data: see `randomset.calibrate`."""
        logits, target = label_outputs(self, data, **options)
        temperature = softmax_temperature(logits, target)
        before = (logits / self.temperature.double()).softmax(-1)
        self.temperature.fill_(temperature)
        after = (logits / temperature).softmax(-1)
        return calibration_report("temperature", [temperature], before, after, target)


def softmax_temperature(logits: Tensor, target: Tensor) -> float:
    """Return the temperature that maximises the likelihood of labels under a prior: log T ~ N(0, 0.25²).

    Without the prior, a few samples that are all classified correctly would lead to T → 0. `target` holds
    class indices (n) or shares of the classes (n × N).

    >>> confident = torch.tensor([[4.0, 0.0]] * 4000)
    >>> labels = torch.tensor([0, 0, 0, 1] * 1000)      # correct in 3 of 4 cases, as for softmax(1.1, 0)
    >>> round(softmax_temperature(confident, labels), 1)
    3.6
    >>> round(softmax_temperature(confident[:3], labels[:3]), 2)
    0.99
    """
    values = logits.double()
    shares = target.double() if target.dim() > 1 else nn.functional.one_hot(target, values.shape[1]).double()

    def nll(temperature: Any) -> float:
        log_p = (values / float(temperature[0])).log_softmax(-1)
        return -torch.where(shares > 0, log_p + shares.log(), -torch.inf).logsumexp(-1).mean().item()

    return float(fit_temperature(nll, len(values))[0])


@register("temperature")
class TemperatureScaling(Softmax):
    """A softmax network whose temperature is fitted to the validation data (Guo et al. 2017)."""

    base_method = "softmax"

    @classmethod
    def train_on(cls: type[_S], job: TrainingJob) -> _S:
        """Train a softmax network unless one is given, and calibrate it."""
        if job.validation is None:
            raise RandomSetError("temperature scaling requires validation data", got="none")
        if job.base is None:
            model = super().train_on(job)
        else:
            base = job.base
            model = cls(base.backbone, base.classes, in_features=base.in_features, preprocess=base.preprocess)
            model.load_state_dict(base.state_dict())
        model.calibrate(job.validation, progress=job.progress)
        return model


@register("mc-dropout")
class MCDropout(Softmax):
    """Dropout on the last features that stays on in prediction (Gal and Ghahramani 2016).

    The features are computed once; predictions average over masks drawn from a fixed seed. Dropout inside the
    backbone is off in prediction, as always.
    """

    kept: Tensor

    def __init__(
        self, backbone: nn.Module, num_classes: Any, *, rate: float = 0.2, samples: int = 20, **options: Any
    ) -> None:
        super().__init__(backbone, num_classes, **options)
        if not 0 < rate < 1 or samples < 1:
            raise RandomSetError(
                "expected a dropout rate between 0 and 1 and at least one sample",
                got=f"rate {rate}, {samples} samples",
            )
        self.rate, self.samples = rate, samples
        generator = torch.Generator().manual_seed(0)
        kept = torch.rand(samples, 1, self.in_features, generator=generator) >= rate
        self.register_buffer("kept", kept / (1 - rate))

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's further arguments."""
        return {"rate": self.rate, "samples": self.samples}

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return logits (B × N), with dropout on the features in training mode."""
        return self.layer(nn.functional.dropout(self.features(*inputs, **named), self.rate, self.training))

    def predict_batch(self, inputs: Any) -> Prediction:
        """Average over fixed dropout masks."""
        features = call_with(self.features, inputs)
        return Prediction.from_samples(self.probabilities(self.layer(features * self.kept.to(features))))
