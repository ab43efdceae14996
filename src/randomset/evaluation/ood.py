"""Out-of-distribution detection by an uncertainty score, and the threshold for deployment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from randomset._core.checks import is_number
from randomset._core.files import expanded, read_document, write_document
from randomset.errors import FileFormatError, RandomSetError

__all__ = ["Detection", "Threshold", "detection", "rank_average"]

_FILE, _FORMAT, _VERSION = "threshold.json", "randomset.threshold", 1


@dataclass(frozen=True)
class Detection:
    """How well a score separates unknown inputs (the positive class) from known ones.

    auroc: probability that an unknown input scores higher than a known one
    auprc: average precision with unknown as the positive class; `auprc_known` with known as positive
    fpr95: false positive rate at a true positive rate of 95 %
    error: detection error, the smallest mean of false positive and false negative rate over all thresholds
    """

    auroc: float
    auprc: float
    auprc_known: float
    fpr95: float
    error: float
    known: tuple[float, float]
    """Mean and standard deviation of the score on known inputs."""
    unknown: tuple[float, float]


def detection(known: Tensor, unknown: Tensor) -> Detection:
    """Evaluate a score (higher means more uncertain) on known (n) and unknown (m) inputs.

    >>> found = detection(torch.tensor([0.1, 0.2, 0.4]), torch.tensor([0.3, 0.9]))
    >>> round(found.auroc, 4), round(found.fpr95, 4)
    (0.8333, 0.3333)
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    for name, score in (("known", known), ("unknown", unknown)):
        if score.dim() != 1 or not len(score) or not score.isfinite().all():
            raise RandomSetError(
                f"invalid scores of the {name} inputs",
                got=f"shape {tuple(score.shape)}",
                expected="a non-empty 1-D tensor of finite numbers",
            )
    both = torch.cat((known, unknown)).double().numpy()
    target = np.r_[np.zeros(len(known)), np.ones(len(unknown))]
    false, true, _ = roc_curve(target, both, drop_intermediate=False)
    return Detection(
        auroc=float(roc_auc_score(target, both)),
        auprc=float(average_precision_score(target, both)),
        auprc_known=float(average_precision_score(1 - target, -both)),
        fpr95=float(false[true >= 0.95].min()),
        error=float(((false + 1 - true) / 2).min()),
        known=_moments(known),
        unknown=_moments(unknown),
    )


def rank_average(known: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    """Average several scores by their ranks among known inputs: (n) each → (m), in [0, 1].

    Each score is replaced by the fraction of known (validation) inputs below it, so scales do not matter.

    >>> rank_average({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([10.0, 20.0])},
    ...              {"a": torch.tensor([1.5]), "b": torch.tensor([30.0])})
    tensor([0.7500], dtype=torch.float64)
    """
    shares = []
    for name, reference in known.items():
        ordered = reference.double().sort().values
        low = torch.searchsorted(ordered, other[name].double())
        high = torch.searchsorted(ordered, other[name].double(), right=True)
        shares.append((low + high) / (2 * len(ordered)))
    return torch.stack(shares).double().mean(0)


@dataclass(frozen=True)
class Threshold:
    """The largest score at which an input still counts as known.

    >>> threshold = Threshold.keeping(0.75, torch.tensor([0.0, 0.25, 0.5, 1.0]), "entropy")
    >>> threshold.value, threshold.known(torch.tensor([0.5, 0.75]))
    (0.5, tensor([ True, False]))
    """

    score: str
    value: float
    share: float

    @classmethod
    def keeping(cls, share: float, validation: Tensor, score: str) -> Threshold:
        """Choose the smallest threshold that accepts at least the given share of known validation inputs."""
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
        return cls(score, float(ordered[place]), share)

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


def _moments(score: Tensor) -> tuple[float, float]:
    return float(score.double().mean()), float(score.double().std(correction=0))
