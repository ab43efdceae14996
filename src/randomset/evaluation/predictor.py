"""The one door through which every model is measured: inputs in, probabilities and uncertainties out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.batches import as_floating, call_with, evaluating, feature_tensor, moved
from randomset.belief.random_set import RandomSet
from randomset.errors import InvalidBeliefError, RandomSetError, ShapeError
from randomset.models.base import Baseline
from randomset.models.random_set import RandomSetNetwork

__all__ = ["Prediction", "Predictor", "as_predictor", "random_set_predictor", "softmax_predictor"]


@dataclass(frozen=True)
class Prediction:
    """What a model says about a batch: class probabilities (n × N) and scores of uncertainty (n).

    Scores grow with uncertainty; entropy and 1 − maximum are always among them. A model with bounds also has
    `lower` and `upper` probabilities (n × N).

    >>> Prediction(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).scores["entropy"]
    tensor([1., 0.])
    """

    probabilities: Tensor
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    lower: Tensor | None = None
    upper: Tensor | None = None
    negative: Tensor | None = None
    """Of a random-set network, the share of its raw mass that was negative, and repaired (n)."""

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.dim() != 2 or not p.is_floating_point():
            raise ShapeError(
                "these are no class probabilities", got=f"{p.dtype} {tuple(p.shape)}", expected="(n, N)"
            )
        bad = ~p.isfinite().all(1) | ((p.sum(1) - 1).abs() > 1e-2) | (p < -1e-3).any(1)
        if bad.any():
            place = int(bad.nonzero()[0])
            error = InvalidBeliefError(
                "a model gave no probabilities",
                got=f"{[round(value, 4) for value in p[place].tolist()[:5]]} for input {place} of a batch",
                expected="finite numbers that sum to one",
                remedy="Logits go through softmax first" if p[place].isfinite().all() else "",
            )
            error.sample = place
            raise error
        certain = {
            "entropy": torch.special.entr(p.clamp_min(0)).sum(1) / float(np.log(2)),
            "1 - maximum": 1 - p.amax(1),
        }
        scores = {**certain, **self.scores}
        if wrong := [name for name, score in scores.items() if score.shape != p.shape[:1]]:
            raise ShapeError("a score is not one number for each input", got=wrong[0])
        for name, values in (*scores.items(), ("lower", self.lower), ("upper", self.upper)):
            if values is not None and not values.isfinite().all():
                error = InvalidBeliefError(
                    f"{name} is not finite", got=f"row {int((~values.isfinite()).nonzero()[0][0])}"
                )
                error.sample = int((~values.isfinite()).nonzero()[0][0])
                raise error
        object.__setattr__(self, "scores", scores)

    @classmethod
    def from_random_set(cls, answer: RandomSet) -> Prediction:
        """Take over everything that a random set knows."""
        scores = {
            "entropy": answer.entropy,
            "credal width": answer.credal_width,
            "non-specificity": answer.nonspecificity,
            "mass on Θ": answer.mass[..., -1],
        }
        return cls(answer.pignistic, scores, answer.lower, answer.upper, answer.validity.negative)

    @classmethod
    def concatenate(cls, parts: Sequence[Prediction]) -> Prediction:
        """Join batches."""
        names = parts[0].scores
        bounds = [
            None if getattr(parts[0], side) is None else torch.cat([getattr(part, side) for part in parts])
            for side in ("lower", "upper", "negative")
        ]
        return cls(
            torch.cat([part.probabilities for part in parts]),
            {name: torch.cat([part.scores[name] for part in parts]) for name in names},
            *bounds,
        )

    @property
    def labels(self) -> Tensor:
        """The most likely classes (n)."""
        return self.probabilities.argmax(1)

    @property
    def confidence(self) -> Tensor:
        """The probability of the most likely class (n)."""
        return self.probabilities.amax(1)

    def __len__(self) -> int:
        return len(self.probabilities)

    def __getitem__(self, places: Any) -> Prediction:
        return Prediction(
            self.probabilities[places],
            {name: score[places] for name, score in self.scores.items()},
            *(None if one is None else one[places] for one in (self.lower, self.upper, self.negative)),
        )


class Predictor(Protocol):
    """Anything that turns a batch of inputs into a `Prediction`."""

    def __call__(self, inputs: Any) -> Prediction:
        """Predict a batch."""


@dataclass(frozen=True)
class _OfRandomSet:
    """Classes, not functions inside functions: several processes must be able to send them to each other."""

    network: RandomSetNetwork
    calibrated: bool

    def __call__(self, inputs: Any) -> Prediction:
        answer = self.network.predict(inputs, calibrated=self.calibrated, batch_size=2**30, progress=False)
        return Prediction.from_random_set(answer.to("cpu"))


@dataclass(frozen=True)
class _OfSoftmax:
    model: nn.Module

    @torch.no_grad()
    def __call__(self, inputs: Any) -> Prediction:
        some = next(self.model.parameters(), torch.zeros(()))
        with evaluating(self.model):
            logits = feature_tensor(
                call_with(self.model, moved(as_floating(inputs, some.dtype), some.device))
            )
        return Prediction(logits.float().softmax(1).cpu())


@dataclass(frozen=True)
class _OfFunction:
    function: Callable[[Any], Any]

    def __call__(self, inputs: Any) -> Prediction:
        found = self.function(inputs)
        if isinstance(found, Prediction):
            return found
        if isinstance(found, RandomSet):
            return Prediction.from_random_set(found.to("cpu"))
        scores: Mapping[str, Any] = {}
        if isinstance(found, tuple):
            found, scores = found
        return Prediction(_numbers(found), {name: _numbers(score) for name, score in scores.items()})


def _numbers(values: Any) -> Tensor:
    """Take numbers from anywhere: on the CPU, without gradients, in a precision that NumPy knows."""
    found = values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    if not found.is_floating_point():
        return found.double()
    return found.float() if found.dtype.itemsize < 4 else found


def random_set_predictor(network: RandomSetNetwork, *, calibrated: bool = True) -> Predictor:
    """Measure a random-set network: pignistic probabilities, credal width and its other uncertainties."""
    return _OfRandomSet(network, calibrated)


def softmax_predictor(model: nn.Module) -> Predictor:
    """Measure any module whose outputs are logits.

    >>> predict = softmax_predictor(nn.Linear(4, 3))
    >>> sorted(predict(torch.randn(5, 4)).scores)
    ['1 - maximum', 'entropy']
    """
    if not isinstance(model, nn.Module):
        raise RandomSetError(
            "the model is no torch module", got=type(model).__name__, remedy="as_predictor takes functions"
        )
    return _OfSoftmax(model)


def as_predictor(function: Any) -> Predictor:
    """Measure anything: a random-set network, a module that gives logits, an estimator, or any function.

    A function takes inputs and returns probabilities, or (probabilities, scores by name).

    >>> predict = as_predictor(lambda x: [[0.9, 0.1]] * len(x))
    >>> predict([1, 2]).labels
    tensor([0, 0])
    """
    if isinstance(function, (_OfRandomSet, _OfSoftmax, _OfFunction)):
        return function
    if isinstance(function, RandomSetNetwork):
        return random_set_predictor(function)
    if isinstance(function, Baseline):
        return _OfFunction(function.predict)
    if isinstance(function, nn.Module):
        return softmax_predictor(function)
    for name in ("predict_random_set", "predict_proba"):  # estimators of scikit-learn, ours among them
        if hasattr(function, name):
            return _OfFunction(getattr(function, name))
    if not callable(function):
        raise RandomSetError(
            "this cannot be measured",
            got=type(function).__name__,
            expected="a network, a module that gives logits, or a function from inputs to probabilities",
        )
    return _OfFunction(function)
