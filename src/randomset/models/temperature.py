"""Calibration after training: temperatures that make the confidence match the accuracy on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.batches import call_with, evaluating, labelled_batches, progress_bar, unweighted
from randomset.belief.random_set import RandomSet
from randomset.errors import LabelError, RandomSetError
from randomset.models.calibration import BeliefTemperature, Calibration, PignisticTemperature
from randomset.models.prediction import calibration_error

if TYPE_CHECKING:
    from randomset.models.base import Classifier
    from randomset.models.random_set import RandomSetNetwork

__all__ = [
    "CalibrationReport",
    "calibrate",
    "calibrate_random_set",
    "fit_temperature",
    "label_outputs",
    "label_shares",
    "measured",
]

MAX_CHANGED = 5, 0.005
"""A belief temperature may change this many predictions, or this share of them, whichever is larger."""

_RANGE = 0.05, 20.0  # bounds of the temperature
_PRIOR_STD = 0.25
"""Standard deviation of a normal prior on log T, which prevents T → 0 for a few samples without errors."""


@dataclass(frozen=True)
class CalibrationReport:
    """The effect of calibration on the calibration data; pairs are (before, after)."""

    kind: str
    temperature: tuple[float, ...]
    samples: int
    nll: tuple[float, float]
    ece: tuple[float, float]
    accuracy: tuple[float, float]
    changed: int
    """Predictions that changed."""
    refused: int | None = None
    """Predictions that a belief temperature would have changed, if it was rejected for that reason."""

    def __str__(self) -> str:
        values = ", ".join(f"{value:.3f}" for value in self.temperature)
        text = (
            f"Calibrated on {self.samples} samples by {self.kind} ({values}): "
            f"NLL {self.nll[0]:.3f} → {self.nll[1]:.3f}, ECE {self.ece[0]:.3f} → {self.ece[1]:.3f}, "
            f"accuracy {self.accuracy[0]:.2%} → {self.accuracy[1]:.2%}, "
            f"{self.changed} prediction{'' if self.changed == 1 else 's'} changed"
        )
        if self.refused is not None:
            text += f" (a belief temperature would have changed {self.refused})"
        return text


def calibrate(
    model: Classifier,
    data: Any,
    *,
    ignore_index: int = -100,
    batch_size: int = 256,
    progress: bool | None = None,
    **options: Any,
) -> CalibrationReport:
    """Fit a temperature on data that the model was not trained on, and store it in the model.

    The temperature maximises the likelihood of the labels, with a prior that keeps it near 1 if samples are
    few. A softmax network divides its logits by it. A random-set network divides its belief logits by it
    (`BeliefTemperature`; with `per_cardinality=True`, one temperature per cardinality of the sets), or also
    has one for BetP (`PignisticTemperature`), if the second one improves the likelihood by more than chance
    would (Akaike's criterion). A temperature of beliefs can change the most likely class: if it does so for
    more than a handful of samples, only BetP gets a temperature, which keeps the order of the classes.
    `predict` then uses the temperatures.

    Args:
        model: a trained `RandomSetNetwork` or `Softmax` network.
        data: a data set or loader of (inputs, labels); labels are class indices or set-valued.
        ignore_index: samples with this class index are skipped.
        batch_size: samples in a batch, for data sets.
        progress: whether to show a progress bar; None shows it on a terminal.
        options: `per_cardinality` for random-set networks.
    """
    if not hasattr(model, "calibrate"):
        raise RandomSetError(
            "only classifiers of randomset can be calibrated",
            got=type(model).__name__,
            remedy="Build a Softmax or a RandomSetNetwork from it",
        )
    return model.calibrate(
        data, ignore_index=ignore_index, batch_size=batch_size, progress=progress, **options
    )


def calibrate_random_set(
    network: RandomSetNetwork, data: Any, *, per_cardinality: bool = False, **options: Any
) -> CalibrationReport:
    """Fit a temperature to belief logits; see `calibrate`."""
    logits, target = label_outputs(network, data, **options)
    operators = network.operators
    largest = max(map(len, network.budget.sets)) if per_cardinality else 1

    def nll(calibration: Calibration) -> float:
        return _nll(calibration.random_set(logits, operators).pignistic, target)

    def fitted(kind: type[Calibration], count: int) -> Calibration:
        # Together, two low temperatures would make the smallest differences between logits count.
        lowest = _RANGE[0] ** (1 / 2) if (kind, count) == (PignisticTemperature, 2) else _RANGE[0]
        temperature = fit_temperature(lambda t: nll(kind(t).to(logits.device)), len(logits), count, lowest)
        return kind(temperature).to(logits.device)

    before = RandomSet.from_logits(logits, operators)
    chosen, refused = fitted(BeliefTemperature, 1), None
    several: list[tuple[type[Calibration], int]] = [(PignisticTemperature, 2)]
    several += [(BeliefTemperature, largest)] if largest > 1 else []
    for kind, count in several:
        candidate = fitted(kind, count)
        if nll(candidate) < nll(chosen) - (count - 1) / len(logits):
            chosen = candidate
    after = chosen.random_set(logits, operators)
    changed = int((after.labels != before.labels).sum())
    if changed > max(MAX_CHANGED[0], MAX_CHANGED[1] * len(logits)):
        refused, chosen = changed, fitted(PignisticTemperature, 1)
        after = chosen.random_set(logits, operators)
    network.calibration = chosen.eval()
    return calibration_report(
        type(chosen).__name__, chosen.temperature.tolist(), before.pignistic, after.pignistic, target, refused
    )


def calibration_report(
    kind: str,
    temperature: list[float],
    before: Tensor,
    after: Tensor,
    target: Tensor,
    refused: int | None = None,
) -> CalibrationReport:
    """Compare probabilities (n × N) before and after calibration with label shares (n × N)."""
    nll, ece, accuracy = zip(measured(before, target), measured(after, target), strict=True)
    changed = int((before.argmax(1) != after.argmax(1)).sum())
    return CalibrationReport(kind, tuple(temperature), len(target), nll, ece, accuracy, changed, refused)


def measured(probabilities: Tensor, target: Tensor) -> tuple[float, float, float]:
    """Return NLL, ECE and accuracy of probabilities (n × N), given label shares (n × N)."""
    confidence, labels = probabilities.max(1)
    correct = target.gather(1, labels[:, None]).squeeze(1)
    return _nll(probabilities, target), calibration_error(confidence, correct), correct.mean().item()


def _nll(probabilities: Tensor, target: Tensor) -> float:
    return -(probabilities * target).sum(1).clamp_min(1e-12).log().mean().item()


def fit_temperature(
    nll: Callable[[Any], float], samples: int, count: int = 1, lowest: float = _RANGE[0]
) -> Any:
    """Return the `count` temperatures that minimise a mean negative log-likelihood of `samples` samples.

    A prior keeps them near 1 if samples are few: log T is normal with standard deviation 0.25. The likelihood
    of repaired beliefs may have several minima, so a grid search precedes the simplex search.
    """
    from scipy.optimize import minimize

    def objective(log: Any) -> float:
        return nll(np.exp(log)) + float(np.square(log).sum()) / (2 * _PRIOR_STD**2 * samples)

    low, high = np.log((lowest, _RANGE[1]))
    grid = np.linspace(low, high, 25)
    values = [objective(np.full(count, point)) for point in grid]
    start = np.full(count, grid[int(np.argmin(values))])
    simplex = np.vstack([start, start + (grid[1] - grid[0]) * np.eye(count)])
    options = {
        "initial_simplex": simplex.clip(low, high),
        "xatol": 1e-3,
        "fatol": 1e-7,
        "maxiter": 60 * count,
    }
    optimum = minimize(objective, start, method="Nelder-Mead", bounds=[(low, high)] * count, options=options)
    return np.exp(optimum.x if optimum.fun <= min(values) else start)


@torch.no_grad()
def label_outputs(
    model: Classifier,
    data: Any,
    *,
    ignore_index: int = -100,
    batch_size: int = 256,
    progress: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return a model's outputs for labelled samples, and the share of each class in their labels (n × N)."""
    parts = []
    with evaluating(model), progress_bar("calibrating", None, progress) as advance:
        for inputs, used, shares in labelled_inputs(model, data, ignore_index, batch_size):
            # In double precision, so that rounding does not decide ties.
            parts.append((call_with(model, inputs).double()[used], shares))
            advance(1)
    if not parts or not sum(len(outputs) for outputs, _ in parts):
        raise LabelError("no data to calibrate on", got="no labelled samples")
    return torch.cat([outputs for outputs, _ in parts]), torch.cat([shares for _, shares in parts])


def labelled_inputs(
    model: Classifier, data: Any, ignore_index: int, batch_size: int
) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """Yield inputs, which of them have a label, and the shares of the classes in the labels, batch by batch.

    Inputs are converted as in `Classifier.predict`; everything is on the model's device.
    """
    spec = model.input_spec
    for batch in labelled_batches(data, batch_size):
        inputs, labels = unweighted(batch)
        used, shares = label_shares(labels, model.num_classes, ignore_index)
        yield model.converted(inputs, spec), used.to(model.device), shares.to(model.device)


def label_shares(labels: Any, num_classes: int, ignored: int) -> tuple[Tensor, Tensor]:
    """Return which samples have a label, and their labels as 0/1 indicators or class distributions."""
    if not isinstance(labels, Tensor):
        raise LabelError("the calibration data have no labels", got=type(labels).__name__)
    if labels.dim() == 1:
        used = labels != ignored
        known = labels[used]
        if len(known) and not 0 <= known.min() <= known.max() < num_classes:
            bad = known[(known < 0) | (known >= num_classes)][0].item()
            raise LabelError("label out of range", got=bad, expected=f"0 to {num_classes - 1}")
        if known.is_floating_point() and bool((known != known.floor()).any()):
            raise LabelError(
                "labels must be class indices",
                got=float(known[known != known.floor()][0]),
                expected=f"whole numbers from 0 to {num_classes - 1}",
            )
        return used, nn.functional.one_hot(known.long(), num_classes).double()
    if labels.shape[1:] != (num_classes,):
        raise LabelError(
            "labels have the wrong shape for calibration",
            got=f"labels of shape {tuple(labels.shape)}",
            expected=f"class indices (B), or (B × {num_classes})",
        )
    return torch.ones(len(labels), dtype=torch.bool), labels.double()
