"""Conformal prediction: sets of classes that contain the true class with a guaranteed probability."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from randomset.errors import RandomSetError
from randomset.evaluation.metrics import check_labels
from randomset.evaluation.predictor import Prediction

__all__ = ["Conformal", "ConformalResult", "nonconformity", "uniform_from_rows"]

Score = Literal["1 - Pl", "1 - Bel", "1 - BetP", "APS", "RAPS"]
SCORES: tuple[Score, ...] = ("1 - Pl", "1 - Bel", "1 - BetP", "APS", "RAPS")


def nonconformity(
    prediction: Prediction, score: Score, *, seed: int | None = None, penalty: float = 0.01, free: int = 5
) -> Tensor:
    """Return the nonconformity score of each class for each input (n × N).

    1 − Pl, 1 − Bel and 1 − BetP of the class (without bounds, Pl and Bel equal BetP); APS, the cumulative
    probability of the classes sorted by BetP, down to this one; RAPS, the same plus a `penalty` for each rank
    beyond the first `free`. With a seed, APS and RAPS subtract a random fraction of the class's own
    probability, which makes the coverage exact instead of conservative.

    >>> nonconformity(Prediction(torch.tensor([[0.5, 0.25, 0.25]])), "APS")
    tensor([[0.5000, 0.7500, 1.0000]])
    """
    p = prediction.probabilities
    if score not in SCORES:
        raise RandomSetError("unknown score", got=score, expected=f"one of {', '.join(SCORES)}")
    if score == "1 - Pl":
        return 1 - (p if prediction.upper is None else prediction.upper)
    if score == "1 - Bel":
        return 1 - (p if prediction.lower is None else prediction.lower)
    if score == "1 - BetP":
        return 1 - p
    order = p.argsort(dim=1, descending=True, stable=True)
    ranked = p.gather(1, order)
    total = ranked.cumsum(1)
    if seed is not None:
        total = total - uniform_from_rows(p, seed).to(p.dtype)[:, None] * ranked
    if score == "RAPS":
        rank = torch.arange(1, p.shape[1] + 1)
        total = total + penalty * (rank - free).clamp_min(0)
    return torch.empty_like(total).scatter(1, order, total)


@dataclass(frozen=True)
class ConformalResult:
    """Coverage and size of conformal sets on test data."""

    coverage: float
    size: float
    empty: float
    by_class: Tensor
    """Coverage of each class (N); NaN for classes that do not occur."""
    size_by_class: Tensor


class Conformal:
    """Split conformal prediction, calibrated on held-out data.

    The p-value of a class is (1 + number of calibration scores at least as high) / (n + 1); the set of an
    input contains every class whose p-value is above α. It contains the true class with probability at least
    1 − α. With `by_class`, each class is compared only with calibration samples of that class, so the
    guarantee holds for every class (class-conditional coverage).

    >>> calibration = Prediction(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]]))
    >>> conformal = Conformal(calibration, torch.tensor([0, 0, 0, 1]))
    >>> conformal.sets(Prediction(torch.tensor([[0.95, 0.05], [0.65, 0.35]])), alpha=0.3)
    tensor([[ True, False],
            [ True, False]])
    """

    def __init__(
        self,
        calibration: Prediction,
        labels: Tensor,
        score: Score = "1 - BetP",
        *,
        by_class: bool = False,
        seed: int | None = None,
        penalty: float = 0.01,
        free: int = 5,
    ) -> None:
        check_labels(calibration.probabilities, labels)
        self.score, self.by_class, self.seed = score, by_class, seed
        self.options = {"penalty": penalty, "free": free}
        every = nonconformity(calibration, score, seed=seed, penalty=penalty, free=free).double()
        own = every.gather(1, labels[:, None]).squeeze(1)
        n = calibration.probabilities.shape[1]
        groups = [own[labels == c] for c in range(n)] if by_class else [own]
        self.reference = [group.sort().values for group in groups]

    def p_values(self, prediction: Prediction, *, smoothed: bool = False) -> Tensor:
        """Return the p-value of every class (n × N); smoothed p-values are uniform for the true class."""
        scores = self._scores(prediction)
        u = uniform_from_rows(prediction.probabilities, (self.seed or 0) + 2) if smoothed else None
        if not self.by_class:
            return _p_values(scores, self.reference[0], None if u is None else u[:, None])
        columns = zip(scores.unbind(1), self.reference, strict=True)
        return torch.stack([_p_values(column, reference, u) for column, reference in columns], 1)

    def _scores(self, prediction: Prediction) -> Tensor:
        seed = None if self.seed is None else self.seed + 1
        return nonconformity(prediction, self.score, seed=seed, **self.options).double()  # type: ignore[arg-type]

    def sets(
        self, prediction: Prediction, alpha: float = 0.1, *, smoothed: bool = False, never_empty: bool = False
    ) -> Tensor:
        """Return the set of each input as a boolean mask (n × N)."""
        if not 0 < alpha < 1:
            raise RandomSetError("alpha is out of range", got=alpha, expected="0 < alpha < 1")
        if smoothed:
            inside = self.p_values(prediction, smoothed=True) > alpha
        else:  # equivalent to p-values above alpha, but without computing them
            limits = torch.stack([_limit(reference, alpha) for reference in self.reference])
            inside = self._scores(prediction) <= limits
        if never_empty:
            top = torch.zeros_like(inside).scatter(1, prediction.labels[:, None], True)
            inside = torch.where(inside.any(1, keepdim=True), inside, top)
        return inside

    @staticmethod
    def measure(sets: Tensor, labels: Tensor) -> ConformalResult:
        """Compute coverage and size of sets (n × N), overall and per class."""
        n = sets.shape[1]
        hit = sets.gather(1, labels[:, None]).squeeze(1).double()
        size = sets.sum(1).double()
        count = torch.bincount(labels, minlength=n).double()

        def by_class(values: Tensor) -> Tensor:
            return torch.zeros(n, dtype=torch.double).index_add(0, labels, values) / count  # 0/0 is NaN

        return ConformalResult(
            coverage=hit.mean().item(),
            size=size.mean().item(),
            empty=(size == 0).double().mean().item(),
            by_class=by_class(hit),
            size_by_class=by_class(size),
        )


def uniform_from_rows(rows: Tensor, seed: int) -> Tensor:
    """Return a pseudo-random number in [0, 1) per row (n) that depends only on the row and the seed.

    An input therefore gets the same result in every batch, and different inputs get independent numbers.

    >>> rows = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]])
    >>> numbers = uniform_from_rows(rows, 0)
    >>> bool(numbers[0] == numbers[2]), bool(numbers[0] == numbers[1])
    (True, False)
    """
    key = seed.to_bytes(8, "little", signed=True)
    arrays = rows.detach().cpu().contiguous().numpy()
    digests = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in arrays)
    return torch.from_numpy((np.frombuffer(digests, np.uint64) >> np.uint64(11)) * 2.0**-53)


def _p_values(values: Tensor, reference: Tensor, u: Tensor | None) -> Tensor:
    """Return the fraction of references at least as high as each value, counting the value itself."""
    values = values.contiguous()  # searchsorted warns otherwise
    at_least = (len(reference) - torch.searchsorted(reference, values)).double()
    if u is None:
        counted = at_least + 1  # in double: a p-value of exactly alpha must not exceed it
    else:
        above = len(reference) - torch.searchsorted(reference, values, right=True)
        counted = above + u * (at_least - above + 1)
    return counted / (len(reference) + 1)


def _limit(reference: Tensor, alpha: float) -> Tensor:
    """Return the largest score whose p-value is above alpha."""
    count = math.floor(alpha * (len(reference) + 1) + 1e-9)  # references that must be at least as high
    return reference[-count] if count else torch.tensor(math.inf, dtype=torch.double)
