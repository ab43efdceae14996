"""From any model and any data to predictions: predictors, which call a model, and batches of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.batches import (
    as_floating,
    as_tensor,
    call_with,
    evaluating,
    feature_tensor,
    is_texts,
    moved,
    split_batch,
)
from randomset.backbones.inputs import InputSpec
from randomset.belief.random_set import RandomSet
from randomset.data.splits import sample_digests
from randomset.errors import RandomSetError
from randomset.models.base import Classifier
from randomset.models.prediction import Prediction

__all__ = [
    "Feed",
    "Prediction",
    "Predictor",
    "as_predictor",
    "digests_of",
    "random_set_predictor",
    "softmax_predictor",
]


@dataclass(frozen=True)
class Predictor:
    """Calls a model on a batch; a class rather than a closure, so that it can be sent to other processes.

    >>> predict = Predictor(lambda x: [[0.9, 0.1]] * len(x))
    >>> predict([1, 2]).labels
    tensor([0, 0])
    """

    model: Any
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `Classifier.predict`."""

    def __call__(self, inputs: Any) -> Prediction:
        """Predict one batch; the prediction is on the CPU."""
        if isinstance(self.model, Classifier):
            return as_prediction(self.model.predict(inputs, batch_size=2**30, progress=False, **self.options))
        if isinstance(self.model, nn.Module):
            return _from_logits(self.model, inputs)
        return as_prediction(_function(self.model)(inputs))


def as_prediction(output: Any) -> Prediction:
    """Convert the output of a model to a `Prediction` on the CPU.

    Outputs are a `Prediction`, a `RandomSet`, probabilities (n × N), or (probabilities, scores by name).
    """
    if isinstance(output, (Prediction, RandomSet)):
        return Prediction.of(output)
    p, scores = output if isinstance(output, tuple) else (output, {})
    return Prediction(_numbers(p), {name: _numbers(score) for name, score in scores.items()})


@torch.no_grad()
def _from_logits(model: nn.Module, inputs: Any) -> Prediction:
    parameter = next(model.parameters(), torch.zeros(()))
    with evaluating(model):
        logits = feature_tensor(
            call_with(model, moved(as_floating(inputs, parameter.dtype), parameter.device))
        )
    return Prediction(logits.float().softmax(1).cpu())


def _function(model: Any) -> Callable[[Any], Any]:
    """Return the function that predicts: an estimator's method, or the model itself."""
    for name in ("predict_random_set", "predict_proba"):  # scikit-learn's estimators, and ours
        if hasattr(model, name):
            return getattr(model, name)
    return model


def _numbers(values: Any) -> Tensor:
    """Convert to a tensor on the CPU, without gradients, in a precision that NumPy has."""
    tensor = values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    if not tensor.is_floating_point():
        return tensor.double()
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def random_set_predictor(network: Classifier, *, calibrated: bool = True) -> Predictor:
    """Return a predictor for a random-set network, with or without its calibration."""
    return Predictor(network, {"calibrated": calibrated})


def softmax_predictor(model: nn.Module) -> Predictor:
    """Return a predictor for a module that returns logits.

    >>> predict = softmax_predictor(nn.Linear(4, 3))
    >>> sorted(predict(torch.randn(5, 4)).scores)
    ['1 - maximum', 'entropy']
    """
    if not isinstance(model, nn.Module):
        raise RandomSetError(
            "model must be a torch.nn.Module", got=type(model).__name__, remedy="as_predictor takes functions"
        )
    return Predictor(model)


def as_predictor(model: Any) -> Predictor:
    """Return a predictor for a classifier, a module that returns logits, an estimator, or any function.

    A function takes inputs and returns probabilities, or (probabilities, scores by name).

    >>> predict = as_predictor(lambda x: [[0.9, 0.1]] * len(x))
    >>> predict([1, 2]).labels
    tensor([0, 0])
    """
    if isinstance(model, Predictor):
        return model
    if not callable(_function(model)):
        raise RandomSetError(
            "cannot evaluate this model",
            got=type(model).__name__,
            expected="a classifier, a module that returns logits, or a function from inputs to probabilities",
        )
    return Predictor(model)


# -- inputs ----------------------------------------------------------------------------------------


@dataclass
class Feed:
    """Converts batches to model inputs: scales the pixels of sources to [0, 1] and fits a specification."""

    pixels: bool = False
    like: InputSpec | None = None
    resize: bool = True
    remarks: list[str] = field(default_factory=list)

    def __call__(self, batch: Any) -> tuple[Any, Any]:
        """Return the inputs and labels of a batch."""
        inputs, labels = (batch, None) if is_texts(batch) else split_batch(batch)
        if hasattr(inputs, "__array__"):
            inputs = as_tensor(inputs)
        if not isinstance(inputs, Tensor):
            return inputs, labels
        if self.like is not None:
            inputs, done = self.like.fit(inputs, resize=self.resize)
            known = [*self.remarks, *(["divided by 255"] if self.pixels else [])]
            self.remarks += [step for step in done if step not in known]
        elif self.pixels and inputs.dtype == torch.uint8:
            inputs = inputs.float() / 255
        return inputs, labels


def digests_of(inputs: Any) -> Tensor:
    """Return a 64-bit digest of each input (n), 0 for a constant one: see `sample_digests`.

    >>> pixels = torch.tensor([[0, 255], [7, 7]], dtype=torch.uint8)
    >>> bool((digests_of(pixels) == digests_of(pixels.float() / 255)).all())
    True
    """
    if isinstance(inputs, Mapping):
        return torch.stack([digests_of(value) for value in inputs.values()]).sum(0)
    rows = inputs.reshape(len(inputs), -1) if isinstance(inputs, Tensor) else map(str, inputs)
    numbers = [int(digest or "0", 16) for digest in sample_digests(rows)]
    return torch.from_numpy(np.array(numbers, np.uint64).view(np.int64))
