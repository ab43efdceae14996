"""The threshold on an uncertainty score above which an input counts as unknown."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from randomset._core.checks import is_number
from randomset._core.files import expanded, read_document, write_document
from randomset.errors import FileFormatError, RandomSetError, RandomSetWarning

__all__ = ["Threshold"]

_FILE, _FORMAT, _VERSION = "threshold.json", "randomset.threshold", 1
_MOST = 0.5  # share of known inputs with one score, above which a threshold on it says nothing


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
    if len(scores) > 1 and tied > _MOST:
        accepted = float(threshold.known(scores).double().mean())
        other = threshold.score != "entropy"
        remedy = (
            "Choose another score, such as entropy"
            if other
            else "Check the model: its predictions hardly differ"
        )
        warnings.warn(
            f"{tied:.0%} of the {len(scores)} known inputs have the same {threshold.score}, "
            f"{threshold.value:.6g}: the threshold accepts {accepted:.0%} of them instead of "
            f"{threshold.share:.0%}, and every unknown input with that score or less. {remedy}",
            RandomSetWarning,
            stacklevel=3,
        )
