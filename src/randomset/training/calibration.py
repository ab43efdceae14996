"""Calibration after training: temperatures that make the pignistic prediction as sure as it is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from randomset._core.batches import as_floating, call_with, evaluating, moved, split_batch
from randomset._core.progress import progress_bar
from randomset.belief.random_set import RandomSet
from randomset.errors import LabelError, RandomSetError
from randomset.models.calibration import BeliefTemperature, Calibration, PignisticTemperature
from randomset.models.random_set import RandomSetNetwork
from randomset.training.loaders import validation_loader

__all__ = ["CalibrationReport", "calibrate", "calibration_error"]

HANDFUL = 5, 0.005
"""A temperature on beliefs may change this many decisions, or this share of them, whichever is more."""

_RANGE = 0.05, 20.0  # of temperatures

_SPREAD = 0.25
"""A prior on log T, normal with this deviation: few samples without an error would ask for T → 0."""


@dataclass(frozen=True)
class CalibrationReport:
    """What calibration did to the predictions of the validation data."""

    kind: str
    temperature: tuple[float, ...]
    samples: int
    nll: tuple[float, float]
    ece: tuple[float, float]
    accuracy: tuple[float, float]
    changed: int
    """How many decisions are other ones than before."""
    refused: int | None = None
    """How many decisions the temperature on beliefs would have changed, if it was not taken for that."""

    def __str__(self) -> str:
        values = ", ".join(f"{value:.3f}" for value in self.temperature)
        text = (
            f"Calibrated on {self.samples} samples by {self.kind} ({values}): "
            f"NLL {self.nll[0]:.3f} → {self.nll[1]:.3f}, ECE {self.ece[0]:.3f} → {self.ece[1]:.3f}, "
            f"accuracy {self.accuracy[0]:.2%} → {self.accuracy[1]:.2%}, "
            f"{self.changed} decision{'' if self.changed == 1 else 's'} changed"
        )
        if self.refused is not None:
            text += f" (a temperature on the beliefs would have changed {self.refused})"
        return text


def calibrate(
    network: RandomSetNetwork,
    data: Any,
    *,
    per_cardinality: bool = False,
    ignore_index: int = -100,
    batch_size: int = 256,
    progress: bool | None = None,
) -> CalibrationReport:
    """Fit a temperature on data that the network was not trained on, and store it in the network.

    One temperature on the belief logits (`BeliefTemperature`; or one for each cardinality) is chosen by the
    likelihood of the pignistic prediction, with a prior that keeps it near 1 where samples are few. It can
    change which class is the likeliest: where it does so for more than a handful of samples,
    `PignisticTemperature`, which keeps the order of the classes, is fitted instead. `network.predict` then
    uses it unless told otherwise.

    Args:
        network: a trained network.
        data: a data set or loader of (inputs, labels), the labels class indices or set-valued.
        ignore_index: samples with this class index are left out.
        per_cardinality: whether sets of one, two, three … classes each get a temperature.
        batch_size: samples that go through the network at once, for data sets.
        progress: whether to show a bar; None shows it on a terminal.
    """
    if not isinstance(network, RandomSetNetwork):
        raise RandomSetError("only random-set networks can be calibrated", got=type(network).__name__)
    logits, target = _predictions(network, data, ignore_index, batch_size, progress)
    operators = network.operators
    largest = max(map(len, network.budget.sets)) if per_cardinality else 1

    def nll(calibration: Calibration) -> float:
        betp = calibration.random_set(logits, operators).pignistic
        return -(betp * target).sum(1).clamp_min(1e-12).log().mean().item()

    def fitted(kind: type[Calibration], count: int) -> Calibration:
        to_device: Callable[[Any], Calibration] = lambda t: kind(t).to(logits.device)  # noqa: E731

        def objective(log: Any) -> float:
            return nll(to_device(np.exp(log))) + float(np.square(log).mean()) / (2 * _SPREAD**2 * len(logits))

        temperature = _search(objective, count)
        return to_device(temperature)

    before = RandomSet.from_logits(logits, operators)
    chosen, refused = fitted(BeliefTemperature, 1), None
    if per_cardinality and largest > 1:
        several = fitted(BeliefTemperature, largest)
        chosen = several if nll(several) < nll(chosen) else chosen
    after = chosen.random_set(logits, operators)
    changed = int((after.labels != before.labels).sum())
    if changed > max(HANDFUL[0], HANDFUL[1] * len(logits)):
        refused, chosen = changed, fitted(PignisticTemperature, 1)
        after = chosen.random_set(logits, operators)
        changed = int((after.labels != before.labels).sum())
    network.calibration = chosen
    likelihood = [
        -(one.pignistic * target).sum(1).clamp_min(1e-12).log().mean().item() for one in (before, after)
    ]
    right = [target.gather(1, one.labels[:, None]).squeeze(1) for one in (before, after)]
    return CalibrationReport(
        kind=type(chosen).__name__,
        temperature=tuple(chosen.temperature.tolist()),
        samples=len(logits),
        nll=(likelihood[0], likelihood[1]),
        ece=(calibration_error(before.confidence, right[0]), calibration_error(after.confidence, right[1])),
        accuracy=(right[0].mean().item(), right[1].mean().item()),
        changed=changed,
        refused=refused,
    )


@torch.no_grad()
def _predictions(
    network: RandomSetNetwork, data: Any, ignored: int, batch_size: int, progress: bool | None
) -> tuple[Tensor, Tensor]:
    """Return belief logits, and how much of each label is on each class."""
    parts = []
    dtype = next(network.head.parameters()).dtype
    with evaluating(network), progress_bar("calibrating", None, progress) as advance:
        for batch in validation_loader(data, batch_size, 0):
            inputs, labels = split_batch(list(batch)[:2] if isinstance(batch, (tuple, list)) else batch)
            logits = call_with(network, moved(as_floating(inputs, dtype), network.device))
            used, shares = _shares(labels, network.budget.num_classes, ignored)
            # In double precision: ties are not to be broken by rounding.
            parts.append((logits.double()[used.to(network.device)], shares.to(network.device)))
            advance(1)
    if not parts or not sum(len(one) for one, _ in parts):
        raise LabelError("there is nothing to calibrate on", got="no labelled sample")
    return torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts])


def _shares(labels: Any, n: int, ignored: int) -> tuple[Tensor, Tensor]:
    """Return which samples have a label, and its classes: 1 for each that is possible, or a distribution."""
    if not isinstance(labels, Tensor):
        raise LabelError("the data to calibrate on have no labels", got=type(labels).__name__)
    if labels.dim() == 1:
        used = labels != ignored
        known = labels[used]
        if len(known) and not 0 <= known.min() <= known.max() < n:
            bad = known[(known < 0) | (known >= n)][0].item()
            raise LabelError("a label is not a class index", got=bad, expected=f"0 to {n - 1}")
        return used, torch.nn.functional.one_hot(known.long(), n).double()
    if labels.shape[1:] != (n,):
        raise LabelError(
            "calibration needs labels over the classes",
            got=f"labels of shape {tuple(labels.shape)}",
            expected=f"class indices (B), or (B × {n})",
        )
    return torch.ones(len(labels), dtype=torch.bool), labels.double()


def _search(objective: Callable[[Any], float], count: int) -> Any:
    """Minimise over log-temperatures: a grid finds the valley, a simplex its bottom."""
    from scipy.optimize import minimize

    low, high = np.log(_RANGE)
    grid = np.linspace(low, high, 25)
    values = [objective(np.full(count, point)) for point in grid]
    start = np.full(count, grid[int(np.argmin(values))])
    simplex = np.vstack([start, start + (grid[1] - grid[0]) * np.eye(count)])
    found = minimize(
        objective,
        start,
        method="Nelder-Mead",
        bounds=[(low, high)] * count,
        options={
            "initial_simplex": simplex.clip(low, high),
            "xatol": 1e-3,
            "fatol": 1e-7,
            "maxiter": 60 * count,
        },
    )
    return np.exp(found.x if found.fun <= min(values) else start)


def calibration_error(confidence: Tensor, right: Tensor) -> float:
    """Expected calibration error over 15 bins of equal width."""
    bins = (confidence * 15).ceil().clamp(1, 15).long() - 1
    gap = confidence.new_zeros(15).index_add(0, bins, right.to(confidence.dtype) - confidence)
    return (gap.abs().sum() / len(right)).item()
