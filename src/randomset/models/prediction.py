"""Predictions: class probabilities with uncertainty scores, and bounds where a model has them.

Also what is measured and chosen on validation data: the calibration error, and the threshold above which
the score of an input counts as unknown.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from randomset._core.checks import ENOUGH, is_number
from randomset._core.files import expanded, read_document, write_document
from randomset.belief.random_set import RandomSet
from randomset.errors import (
    FileFormatError,
    InvalidBeliefError,
    RandomSetError,
    RandomSetWarning,
    ShapeError,
)

__all__ = [
    "Bins",
    "Prediction",
    "ReliabilityDiagram",
    "Threshold",
    "calibration_error",
    "calibration_gaps",
    "check_score",
    "entropy_bits",
    "reliability_diagram",
]

_LOG_2 = 0.6931471805599453
_RELIABILITY = "1 - reliability"
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

    @property
    def reliability(self) -> Tensor | None:
        """The reliability (n) by which predictions were discounted; None for a model without one."""
        score = self.scores.get(_RELIABILITY)
        return None if score is None else 1 - score

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


def check_score(score: str, available: Collection[str]) -> None:
    """Raise if a score is not among those of a model.

    >>> check_score("1 - reliability", ["entropy", "1 - maximum"])
    Traceback (most recent call last):
        ...
    randomset.errors.RandomSetError: the model has no reliability; got the score 1 - reliability; expected
    one of entropy, 1 - maximum. Train a random-set network with 20 or more validation samples and without
    reliability="none", or wrap a softmax network
    """
    if score in available:
        return
    missing = score == _RELIABILITY
    raise RandomSetError(
        "the model has no reliability" if missing else "unknown score",
        got=f"the score {score}" if missing else score,
        expected=f"one of {', '.join(available)}",
        remedy=f"Train a random-set network with {ENOUGH} or more validation samples and without "
        'reliability="none", or wrap a softmax network'
        if missing
        else "",
    )


# -- the threshold ---------------------------------------------------------------------------------


_FILE, _FORMAT, _VERSION = "threshold.json", "randomset.threshold", 1
_MOST = 0.5  # share of known inputs with one score, above which a threshold on it says nothing
_FEW = 20  # known inputs, below which equal scores are no surprise


@dataclass(frozen=True)
class Threshold:
    """The largest score at which an input still counts as known.

    >>> import torch
    >>> threshold = Threshold.keeping(0.75, torch.tensor([0.0, 0.25, 0.5, 1.0]), "entropy")
    >>> threshold.value, threshold.known(torch.tensor([0.5, 0.75]))
    (0.5, tensor([ True, False]))
    """

    score: str
    value: float
    share: float

    def __str__(self) -> str:
        return (
            f"Inputs count as known if their {self.score} is at most {self.value:.4g}, which accepts "
            f"{self.share:.0%} of the validation samples."
        )

    @classmethod
    def keeping(cls, share: float, validation: Tensor, score: str) -> Threshold:
        """Choose the smallest threshold that accepts at least the given share of known validation inputs.

        Warns if most of these inputs have the same score, since it then cannot tell them from others.
        """
        if not 0 < share <= 1:
            raise RandomSetError("share is out of range", got=share, expected="0 < share ≤ 1")
        if validation.dim() != 1 or not len(validation):
            raise RandomSetError(
                "cannot choose a threshold from these scores",
                got=f"shape {tuple(validation.shape)}",
                expected="one score per known validation input",
            )
        ordered = validation.double().sort().values
        place = int(np.ceil(share * len(ordered) - 1e-9)) - 1
        chosen = cls(score, float(ordered[place]), share)
        _warn_if_tied(chosen, ordered)
        return chosen

    def known_by(self, scores: Mapping[str, Tensor]) -> Tensor:
        """Return which inputs count as known, given all scores of a prediction."""
        if self.score not in scores:
            raise RandomSetError(
                "the model does not provide the threshold's score",
                got=self.score,
                expected=f"one of {', '.join(scores)}",
                remedy="Choose a threshold on one of these, such as Threshold.keeping(0.95, …)",
            )
        return self.known(scores[self.score])

    def save(self, folder: str | Path) -> Path:
        """Write threshold.json to a run folder."""
        path = expanded(folder) / _FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_document(dataclasses.asdict(self), path, _FORMAT, _VERSION)
        return path

    @classmethod
    def load(cls, folder: str | Path) -> Threshold | None:
        """Load the threshold of a run folder, or None if it has none."""
        path = expanded(folder) / _FILE
        if not path.parent.is_dir():
            raise FileFormatError("folder not found", got=str(folder))
        if not path.exists():
            return None
        content = read_document(path, _FORMAT, _VERSION, "the threshold")
        score, value, share = (content.get(name) for name in ("score", "value", "share"))
        if not isinstance(score, str) or not is_number(value, -math.inf) or not is_number(share):
            raise FileFormatError(
                "invalid threshold file",
                got=f"{path} with score {score!r:.40}, value {value!r:.40}, share {share!r:.40}",
                expected="the name of a score and two finite numbers",
                remedy="Evaluate the run again",
            )
        return cls(score, float(value or 0), float(share or 0))

    def known(self, scores: Tensor) -> Tensor:
        """Return which inputs count as known."""
        return scores.double() <= self.value


def _warn_if_tied(threshold: Threshold, scores: Tensor) -> None:
    """Warn if the threshold is the score of most inputs: it accepts them all, and unknown ones like them."""
    value = torch.full_like(scores, threshold.value)
    tied = float(torch.isclose(scores, value, rtol=1e-6, atol=1e-12).double().mean())
    if len(scores) > _FEW and tied > _MOST:
        accepted = float(threshold.known(scores).double().mean())
        remedy = "Choose another score, such as entropy"
        if threshold.score == "entropy":
            remedy = "Check the model: its predictions hardly differ"
        warnings.warn(
            f"{tied:.0%} of the {len(scores)} known inputs have the same {threshold.score}, "
            f"{threshold.value:.6g}: the threshold accepts {accepted:.0%} of them instead of "
            f"{threshold.share:.0%}, and every unknown input with that score or less. {remedy}",
            RandomSetWarning,
            stacklevel=3,
        )


# -- calibration -----------------------------------------------------------------------------------


Bins = Literal["width", "mass"]
NUM_BINS = 15


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Bins of confidence: their edges, number of samples, mean confidence and accuracy."""

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def error(self) -> float:
        """The expected calibration error, Σ_b n_b/n · |accuracy_b − confidence_b|."""
        gap = (self.accuracy - self.confidence).abs()
        return (gap * self.count / self.count.sum()).sum().item()


def reliability_diagram(
    confidence: Tensor, correct: Tensor, bins: int = NUM_BINS, by: Bins = "width"
) -> ReliabilityDiagram:
    """Group predictions (n) by confidence into bins of equal width, or of equal counts ("mass").

    >>> confidence, correct = torch.tensor([0.55, 0.95, 0.95]), torch.tensor([True, True, False])
    >>> diagram = reliability_diagram(confidence, correct, bins=2)
    >>> diagram.count, round(diagram.error, 4)
    (tensor([0, 3]), 0.15)
    """
    if bins < 1 or by not in ("width", "mass"):
        raise RandomSetError(
            "invalid bins", got=f"{bins} by {by}", expected='1 or more, by "width" or "mass"'
        )
    confidence, correct = confidence.double().contiguous(), correct.double()
    edges = (
        torch.linspace(0, 1, bins + 1, dtype=torch.double) if by == "width" else _even_edges(confidence, bins)
    )
    bin_index = torch.bucketize(confidence, edges[1:-1])
    count = torch.bincount(bin_index, minlength=len(edges) - 1)

    def mean(values: Tensor) -> Tensor:
        total = torch.zeros(len(count), dtype=torch.double).index_add(0, bin_index, values)
        return total / count.clamp_min(1)

    return ReliabilityDiagram(edges, count, mean(confidence), mean(correct))


def calibration_gaps(confidence: Tensor, correct: Tensor, bins: int = NUM_BINS) -> Tensor:
    """Return Σ (correct − confidence) of each bin of equal width: (n), (n) → (bins).

    Sums of batches and processes add up; the ECE is Σ |gap| / n.
    """
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.double, device=confidence.device)
    bin_index = torch.bucketize(confidence.double().contiguous(), edges[1:-1])
    return edges.new_zeros(bins).index_add(0, bin_index, correct.double() - confidence.double())


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = NUM_BINS) -> float:
    """Expected calibration error over bins of equal width.

    >>> round(calibration_error(torch.tensor([0.8, 0.8]), torch.tensor([1.0, 0.0])), 4)
    0.3
    """
    return (calibration_gaps(confidence, correct, bins).abs().sum() / len(correct)).item()


def _even_edges(confidence: Tensor, bins: int) -> Tensor:
    """Return edges of bins with about equal counts; equal values share a bin."""
    values, count = confidence.unique(return_counts=True)
    middle = (count.cumsum(0) - count / 2) / count.sum()
    group = (middle * bins).long().clamp_max(bins - 1)
    cuts = (group[1:] != group[:-1]).nonzero()[:, 0]
    return torch.cat((confidence.new_zeros(1), (values[cuts] + values[cuts + 1]) / 2, confidence.new_ones(1)))
