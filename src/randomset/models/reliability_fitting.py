"""Fitting a reliability to training and validation data, such that known inputs keep their calibration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from randomset._core.batches import (
    as_floating,
    call_with,
    evaluating,
    labelled_batches,
    moved,
    progress_bar,
    split_batch,
)
from randomset.errors import LabelError, RandomSetError
from randomset.models.reliability import MAX_ROWS, Reliability, check_reliability, stratified
from randomset.models.temperature import MAX_CHANGED, label_shares, measured

if TYPE_CHECKING:
    from randomset.models.random_set import RandomSetNetwork

__all__ = ["ReliabilityReport", "Reservoir", "fit_reliability"]

_MAX_NLL, _MAX_ECE = 1.005, 0.002
"""What a reliability may cost on the validation data: the NLL times this, the ECE plus this.

Beyond it, one sample may be wholly discounted, which costs log N in its likelihood and 1 in its confidence:
a single outlier among the validation samples must not make every input reliable.
"""

_MEDIAN = 3.0
"""The lowest offset above the median doubt of known inputs: at least half of them have r ≥ 0.95."""

_SHARPENINGS = 1.0, 0.95, 0.9, 0.85, 0.8, 0.7
_PRIOR_STD = 0.25  # of the logarithm of the sharpening, as of a temperature's

_SAMPLES = 4
"""Training samples to fit the Gaussians to, as a multiple of those in the bank."""


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
    rows = min(MAX_ROWS, max(1, max_bytes // (4 * network.in_features)))
    reservoir, counts = Reservoir(_SAMPLES * rows), torch.zeros(network.num_classes, device=network.device)
    with evaluating(network), progress_bar("reliability", None, progress) as advance:
        for features, logits, shares in _outputs(network, train, batch_size, ignore_index):
            alone = shares.sum(1) == shares.amax(1)  # one class; for a set of them, the predicted one
            predicted = logits[:, : network.num_classes].argmax(1)
            labels = torch.where(alone, shares.argmax(1), predicted)
            reservoir.add(features, labels)
            counts += labels.bincount(minlength=network.num_classes)
            advance(1)
        held_out = list(_outputs(network, val, batch_size, ignore_index))
    if not held_out:
        raise LabelError("no validation data to fit the reliability to", got="no samples")
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
    fitted.support.copy_(_support(counts.to(features.device)))
    logits = logits.double()
    before = measured(network.random_set(logits).pignistic, target)
    after, mean = _choose(fitted, fitted.distances(features).double(), network, logits, target)
    network.reliability = fitted.to(network.device)
    return ReliabilityReport(
        *(kind, len(fitted.bank), len(features), mean),
        nll=(before[0], after[0]),
        ece=(before[1], after[1]),
    )


def _support(counts: Tensor) -> Tensor:
    """Return log √(n_c / n̄) for the number of training samples of each class."""
    counts = counts.double().clamp_min(1)
    return (counts / counts.mean()).log() / 2


def _choose(
    fitted: Reliability, distances: Tensor, network: RandomSetNetwork, logits: Tensor, target: Tensor
) -> tuple[tuple[float, float, float], float]:
    """Choose sharpening and offset; return NLL, ECE and accuracy with them, and the mean reliability."""
    plain = network.random_set(logits).pignistic
    nll, ece, _ = measured(plain, target)
    max_nll = _MAX_NLL * nll + math.log(plain.shape[1]) / len(target)
    max_ece = ece + _MAX_ECE + 1 / len(target)
    candidates = []
    for sharpening in _SHARPENINGS:
        sharp = network.random_set(logits / sharpening).pignistic
        changed = int((sharp.argmax(1) != plain.argmax(1)).sum())
        if changed <= max(MAX_CHANGED[0], MAX_CHANGED[1] * len(target)):
            prior = math.log(sharpening) ** 2 / (2 * _PRIOR_STD**2 * len(target))
            candidates.append((sharpening, prior, sharp, fitted.doubt(distances, sharp)))

    def best(offset: float) -> tuple[float, float, tuple[float, float, float], float] | None:
        """Return the best sharpening for an offset, None if none keeps likelihood and calibration."""
        found = []
        for sharpening, prior, sharp, doubt in candidates:
            r = fitted.reliability_at(doubt, offset)
            discounted = r[:, None] * sharp + (1 - r[:, None]) / sharp.shape[1]
            new = measured(discounted, target)
            if new[0] <= max_nll and new[1] <= max_ece:
                found.append((new[0] + prior, sharpening, new, float(r.mean())))
        return min(found) if found else None

    doubts = candidates[0][-1]
    low, high = float(doubts.median()) + _MEDIAN, float(doubts.max()) + 10.0
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if best(middle) else (middle, high)
    chosen = best(high)
    if chosen is None:
        raise RandomSetError(
            "no reliability keeps the likelihood of the validation data", got=f"NLL {nll:.4g}, ECE {ece:.4g}"
        )
    fitted.offset.fill_(high)
    fitted.sharpening.fill_(chosen[1])
    return chosen[2], chosen[3]


def _outputs(
    network: RandomSetNetwork, data: Any, batch_size: int, ignore_index: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield features, logits and shares of the classes in the labels, batch by batch."""
    for batch in labelled_batches(data, batch_size):
        inputs, labels = split_batch(list(batch)[:2] if isinstance(batch, (tuple, list)) else batch)
        features = call_with(network.features, moved(as_floating(inputs, network.dtype), network.device))
        used, shares = label_shares(labels, network.num_classes, ignore_index)
        used = used.to(network.device)
        yield features[used], network.head(features)[used], shares.to(network.device)


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
