"""Fitting a reliability to training and validation data, such that known inputs keep their calibration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from randomset._core.batches import call_with, evaluating, progress_bar
from randomset._core.checks import stratified
from randomset.belief.text import FAMILIAR
from randomset.errors import LabelError, RandomSetError, RandomSetWarning
from randomset.models.reliability import (
    MAX_ROWS,
    Reliability,
    check_enough,
    check_max_bytes,
    check_reliability,
)
from randomset.models.temperature import MAX_CHANGED, labelled_inputs, measured

if TYPE_CHECKING:
    from randomset.models.random_set import RandomSetNetwork

__all__ = ["ReliabilityReport", "Reservoir", "fit_reliability"]

_LIMITS = (1.004, 0.001, 0.0), (1.006, 0.002, 0.05)
"""The cost of distances, and the cost of distances and few samples together: the NLL on the validation data
times the first number, the ECE plus the second."""

_OUTLYING = 3.0
"""The validation sample with the largest doubt does not count for these limits, nor do those beyond the 95 %
quantile by more than three times its distance from the median: outliers must not make all inputs reliable."""

_FEW = 25
"""Beyond these limits, half of one of up to 50 validation samples may be wholly discounted, which costs log N
in its likelihood and 1 in its confidence; of more samples, 25 / m of one, so that likelihood and calibration
hardly change. For few training samples, the third number is added to this share."""

_MEDIAN = 3.0
"""The lowest offset above the median doubt of known inputs: at least half of them have r ≥ 0.95."""

_SHARPENINGS = 1.0, 0.95, 0.9, 0.85
_PRIOR_STD = 0.25  # of the logarithm of the sharpening, as of a temperature's
_PRIOR_WEIGHTS = 2.0, 1.5, 1.0, 0.75, 0.5, 0.25, 0.1, 0.0  # s of the imprecise Dirichlet model

_IMPRECISION = 12.0
"""κ times √n_c. Chosen where the true probability is known, such that intervals contain it for 80 % of inputs
or more: see `benchmarks.coverage`."""

_KNOWN = 0.95
"""The share of known inputs to be called familiar, unless most of their mass is discounted."""

_SAMPLES, _FOR_GAUSSIANS = 4, 1024
"""Training samples to fit the Gaussians to, as a multiple of those in the bank, and of at least so many."""


@dataclass(frozen=True)
class ReliabilityReport:
    """The effect of a reliability on the validation data; pairs are (without, with)."""

    kind: str
    rows: int
    """Training samples in the bank of neighbours."""
    samples: int
    """Validation samples."""
    mean: float
    """The mean reliability of the validation samples."""
    familiar_from: float
    """The smallest reliability of an input that is called familiar."""
    nll: tuple[float, float]
    ece: tuple[float, float]

    def __str__(self) -> str:
        return (
            f"Reliability ({self.kind}) fitted on {self.samples} validation samples: mean {self.mean:.3f}, "
            f"NLL {self.nll[0]:.3f} → {self.nll[1]:.3f}, ECE {self.ece[0]:.3f} → {self.ece[1]:.3f}"
        )


@torch.no_grad()
def fit_reliability(
    network: RandomSetNetwork,
    train: Any,
    val: Any,
    *,
    kind: str = "auto",
    max_bytes: int = 16 * 2**20,
    ignore_index: int = -100,
    batch_size: int = 256,
    progress: bool | None = None,
) -> ReliabilityReport:
    """Fit how well the training data support a prediction, and store it in the network.

    `predict` then discounts every prediction by its reliability: inputs unlike the training data get most of
    their mass on Θ. A discount makes every prediction less confident, so beliefs to be discounted are
    sharpened first. The two are fitted together: the offset is the lowest at which the likelihood and the
    calibration error of known validation inputs hardly change, with the sharpening that suits it best.
    Calibrate the network first.

    Args:
        network: a trained network.
        train: the training data: a data set, a loader or a pair of tensors; read once, in batches.
        val: labelled data that the network was not trained on.
        kind: "auto", "neighbours" or "gaussians": see `Reliability`.
        max_bytes: the largest size of the bank of training samples.
        ignore_index: samples with this class index are skipped.
        batch_size: samples in a batch, for data sets.
        progress: whether to show a progress bar; None shows it on a terminal.
    """
    if check_reliability(kind) == "none":
        raise RandomSetError(
            "nothing to fit", got='the kind "none"', remedy="Set network.reliability = None to remove it"
        )
    check_max_bytes(max_bytes)
    # The Gaussians need samples of each class, also where the bank is small or there is none.
    least = 1 if kind == "neighbours" else _FOR_GAUSSIANS
    rows = min(MAX_ROWS, max(least, int(max_bytes // (4 * network.in_features))))
    reservoir, counts = Reservoir(_SAMPLES * rows), torch.zeros(network.num_classes, device=network.device)
    single = True
    with evaluating(network), progress_bar("reliability", None, progress) as advance:
        held_out = list(_outputs(network, val, batch_size, ignore_index))
        check_enough(sum(len(part[0]) for part in held_out))  # before the pass over the training data
        for features, logits, shares in _outputs(network, train, batch_size, ignore_index):
            alone = shares.sum(1) == shares.amax(1)  # one class; for a set of them, the predicted one
            single &= bool(alone.all())
            predicted = logits[:, : network.num_classes].argmax(1)
            labels = torch.where(alone, shares.argmax(1), predicted)
            reservoir.add(features, labels)
            counts += labels.bincount(minlength=network.num_classes)
            advance(1)
    features, logits, target = (torch.cat(parts) for parts in zip(*held_out, strict=True))
    training, labels = reservoir.samples()
    fitted = Reliability.fit(
        training.to(features.device),
        labels.to(features.device),
        features,
        num_classes=network.num_classes,
        kind=kind,
        max_bytes=max_bytes,
    )
    if single:
        _warn_of_missing(counts, network.known_classes)
    counts = counts.to(features.device).double().clamp_min(1)
    fitted.support.copy_((counts / counts.mean()).log() / 2)
    fitted.imprecision.copy_((_IMPRECISION / counts.sqrt()).clamp_max(1))
    logits = logits.double()
    before = measured(network.random_set(logits).pignistic, target)
    after, reliability = _choose(fitted, fitted.distances(features).double(), network, logits, target, counts)
    limit = reliability.quantile(1 - _KNOWN, interpolation="lower")
    fitted.familiar_from.copy_(limit.clamp_min(FAMILIAR))
    network.reliability = fitted.to(network.device).eval()
    return ReliabilityReport(
        *(kind, len(fitted.bank), len(features), float(reliability.mean())),
        familiar_from=float(fitted.familiar_from),
        nll=(before[0], after[0]),
        ece=(before[1], after[1]),
    )


def _warn_of_missing(counts: Tensor, classes: Sequence[str]) -> None:
    """Warn of classes without training samples, unless they are many, as of a published classifier."""
    missing = [name for name, count in zip(classes, counts.tolist(), strict=True) if not count]
    if 0 < len(missing) < len(classes) / 2:
        shown = ", ".join(missing[:5]) + ", …" * (len(missing) > 5)
        warnings.warn(
            f"no training samples of {len(missing)} of {len(classes)} classes ({shown}): predictions of them "
            "are treated as if there were one sample of each",
            RandomSetWarning,
            stacklevel=5,
        )


@dataclass(frozen=True)
class _Candidate:
    """Validation predictions that were sharpened by a temperature, with their doubt."""

    sharpening: float
    penalty: float
    probabilities: Tensor
    doubt: Tensor
    counts: Tensor
    """Training samples of the predicted classes."""

    def reliability(self, fitted: Reliability, offset: float, weight: float) -> Tensor:
        """Return r with an offset and a prior weight s."""
        return fitted.reliability_at(self.doubt, offset) * self.counts / (self.counts + weight)

    def discounted(self, fitted: Reliability, offset: float, weight: float) -> Tensor:
        """Return the probabilities of discounted predictions."""
        r = self.reliability(fitted, offset, weight)[:, None]
        return r * self.probabilities + (1 - r) / self.probabilities.shape[1]


def _choose(
    fitted: Reliability,
    distances: Tensor,
    network: RandomSetNetwork,
    logits: Tensor,
    target: Tensor,
    counts: Tensor,
) -> tuple[tuple[float, float, float], Tensor]:
    """Choose offset, prior weight and sharpening; return NLL, ECE, accuracy and r on the validation data.

    First the lowest offset, without a prior weight, then the highest prior weight.
    """
    plain, samples = network.random_set(logits).pignistic, len(target)
    candidates = []
    for sharpening in _SHARPENINGS:
        sharp = network.random_set(logits / sharpening).pignistic
        labels = sharp.argmax(1)
        changed = int((labels != plain.argmax(1)).sum())
        if changed <= max(MAX_CHANGED[0], MAX_CHANGED[1] * samples):
            penalty = math.log(sharpening) ** 2 / (2 * _PRIOR_STD**2 * samples)
            doubt = fitted.doubt(distances) - fitted.support.double()[labels]
            candidates.append(_Candidate(sharpening, penalty, sharp, doubt, counts[labels]))

    def best(offset: float, weight: float, limits: tuple[float, float, float]) -> _Candidate | None:
        """Return the best candidate that keeps likelihood and calibration."""
        found, (factor, more, share) = [], limits
        share += min(0.5, _FEW / samples)
        for candidate in candidates:
            new = measured(candidate.discounted(fitted, offset, weight)[usual], target[usual])
            within = new[0] <= factor * nll + share * math.log(plain.shape[1]) / samples
            if within and new[1] <= ece + more + share / samples:
                found.append((new[0] + candidate.penalty, candidate.sharpening, candidate))
        return min(found)[-1] if found else None

    doubts = candidates[0].doubt
    middle, most = doubts.quantile(0.5), doubts.quantile(0.95)
    usual = doubts.argsort()[: samples - 1]
    usual = usual[doubts[usual] <= most + _OUTLYING * (most - middle)]
    doubts = doubts[usual]
    nll, ece, _ = measured(plain[usual], target[usual])
    low, high = float(doubts.median()) + _MEDIAN, float(doubts.max()) + 10.0
    for _ in range(16):
        half = (low + high) / 2
        low, high = (low, half) if best(half, 0.0, _LIMITS[0]) else (half, high)
    for weight in _PRIOR_WEIGHTS:
        if chosen := best(high, weight, _LIMITS[1]):
            break
    else:
        raise RandomSetError(
            "no reliability keeps the likelihood of the validation data", got=f"NLL {nll:.4g}, ECE {ece:.4g}"
        )
    fitted.offset.fill_(high)
    fitted.sharpening.fill_(chosen.sharpening)
    fitted.evidence.copy_(counts / (counts + weight))
    discounted = chosen.discounted(fitted, high, weight)
    return measured(discounted, target), chosen.reliability(fitted, high, weight)


def _outputs(
    network: RandomSetNetwork, data: Any, batch_size: int, ignore_index: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield features, logits and shares of the classes in the labels, batch by batch."""
    for inputs, used, shares in labelled_inputs(network, data, ignore_index, batch_size):
        features = call_with(network.features, inputs)
        yield features[used], network.head(features)[used], shares


class Reservoir:
    """A sample of training features with about the same number of each class, from one pass over batches.

    >>> reservoir = Reservoir(4)
    >>> for label in (0, 0, 0, 1):
    ...     reservoir.add(torch.zeros(2, 3), torch.full((2,), label))
    >>> features, labels = reservoir.samples()
    >>> labels.sort().values
    tensor([0, 0, 1, 1])
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._features: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._held = 0

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Take a batch of features (B × F) with class labels (B)."""
        self._features.append(features.detach().float().cpu())
        self._labels.append(labels.detach().long().cpu())
        self._held += len(features)
        if self._held > 2 * self.rows:
            self._prune()

    def samples(self) -> tuple[Tensor, Tensor]:
        """Return the features and labels that were kept."""
        if not self._features:
            raise LabelError("no training data to fit the reliability to", got="no samples")
        if self._held > self.rows:
            self._prune()
        return torch.cat(self._features), torch.cat(self._labels)

    def _prune(self) -> None:
        features, labels = torch.cat(self._features), torch.cat(self._labels)
        kept = stratified(labels, self.rows)
        self._features, self._labels, self._held = [features[kept]], [labels[kept]], len(kept)
