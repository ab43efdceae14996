"""Predictions: class probabilities with uncertainty scores, and bounds where a model has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from randomset.belief.random_set import RandomSet
from randomset.errors import InvalidBeliefError, ShapeError

__all__ = ["Prediction", "entropy_bits"]

_LOG_2 = 0.6931471805599453
_OPTIONAL = ("lower", "upper", "negative")


def entropy_bits(probabilities: Tensor) -> Tensor:
    """Shannon entropy in bits: (…, N) → (…).

    >>> entropy_bits(torch.tensor([0.5, 0.5]))
    tensor(1.)
    """
    return torch.special.entr(probabilities).sum(-1) / _LOG_2


@dataclass(frozen=True)
class Prediction:
    """Class probabilities (n × N) and uncertainty scores (n) for a batch of inputs.

    Scores grow with uncertainty; "entropy" (bits) and "1 - maximum" are always among them. A model with
    bounds also has `lower` and `upper` probabilities (n × N).

    >>> Prediction(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).scores["entropy"]
    tensor([1., 0.])
    """

    probabilities: Tensor
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    lower: Tensor | None = None
    upper: Tensor | None = None
    negative: Tensor | None = None
    """For random-set networks, the share of the raw mass that was negative and had to be repaired (n)."""

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.dim() != 2 or not p.is_floating_point():
            raise ShapeError(
                "expected class probabilities",
                got=f"{p.dtype} {tuple(p.shape)}",
                expected="floats of shape (n, N)",
            )
        invalid = ~p.isfinite().all(1) | ((p.sum(1) - 1).abs() > 1e-2) | (p < -1e-3).any(1)
        if invalid.any():
            sample = int(invalid.nonzero()[0])
            raise _error(
                "the model's outputs are not probabilities",
                sample,
                got=f"{[round(value, 4) for value in p[sample].tolist()[:5]]} for input {sample} of a batch",
                expected="finite numbers that sum to one",
                remedy="Apply softmax to logits first" if p[sample].isfinite().all() else "",
            )
        default = {"entropy": entropy_bits(p.clamp_min(0)), "1 - maximum": 1 - p.amax(1)}
        scores = {**default, **self.scores}
        for name, score in scores.items():
            if score.shape != p.shape[:1]:
                raise ShapeError("expected one score per input", got=f"{name} of shape {tuple(score.shape)}")
        for name, values in (*scores.items(), ("lower", self.lower), ("upper", self.upper)):
            if values is not None and not values.isfinite().all():
                sample = int((~values.isfinite()).nonzero()[0][0])
                raise _error(f"{name} is not finite", sample, got=f"row {sample}")
        object.__setattr__(self, "scores", scores)

    @classmethod
    def from_random_set(cls, answer: RandomSet) -> Prediction:
        """Summarise a random set by its pignistic probability, bounds and scores."""
        return cls(answer.pignistic, answer.scores, answer.lower, answer.upper, answer.validity.negative)

    @classmethod
    def of(cls, answer: Prediction | RandomSet) -> Prediction:
        """Convert the prediction of any classifier to a `Prediction` on the CPU."""
        answer = answer.to("cpu")
        return answer if isinstance(answer, Prediction) else cls.from_random_set(answer)

    @classmethod
    def from_samples(cls, samples: Tensor) -> Prediction:
        """Average sampled class probabilities (S × n × N); the mutual information measures disagreement.

        I = H(mean p) − mean H(p), in bits

        >>> certain, torn = torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> Prediction.from_samples(torch.stack((certain, torn), 1)).scores["mutual information"]
        tensor([0., 1.])
        """
        mean = samples.mean(0)
        information = (entropy_bits(mean) - entropy_bits(samples).mean(0)).clamp_min(0)
        return cls(mean.float(), {"mutual information": information.float()})

    @classmethod
    def concatenate(cls, parts: Sequence[Prediction]) -> Prediction:
        """Join the predictions of several batches."""

        def joined(name: str) -> Tensor | None:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else torch.cat(values)

        scores = {name: torch.cat([part.scores[name] for part in parts]) for name in parts[0].scores}
        return cls(torch.cat([part.probabilities for part in parts]), scores, *map(joined, _OPTIONAL))

    @property
    def labels(self) -> Tensor:
        """The most likely classes (n)."""
        return self.probabilities.argmax(1)

    @property
    def confidence(self) -> Tensor:
        """The probability of the most likely class (n)."""
        return self.probabilities.amax(1)

    def to(self, device: Any) -> Prediction:
        """Move all tensors to a device."""
        if self.probabilities.to(device) is self.probabilities:
            return self
        return self._map(lambda values: values.to(device))

    def __len__(self) -> int:
        return len(self.probabilities)

    def __getitem__(self, index: Any) -> Prediction:
        return self._map(lambda values: values[index])

    def _map(self, function: Any) -> Prediction:
        optional = (getattr(self, name) for name in _OPTIONAL)
        return Prediction(
            function(self.probabilities),
            {name: function(score) for name, score in self.scores.items()},
            *(None if values is None else function(values) for values in optional),
        )


def _error(what: str, sample: int, **parts: Any) -> InvalidBeliefError:
    error = InvalidBeliefError(what, **parts)
    error.sample = sample
    return error
