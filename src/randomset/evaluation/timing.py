"""Prediction time after warm-up, also relative to a softmax model with the same backbone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from randomset.errors import RandomSetError
from randomset.evaluation.predictor import Predictor, as_predictor, softmax_predictor
from randomset.models.base import Classifier

__all__ = ["in_turns", "measure_time"]


def measure_time(
    model: Any, inputs: Tensor, *, repeats: int = 20, warm_up: int = 3, batch_size: int = 256
) -> dict[str, Any]:
    """Measure the time of predictions with all uncertainty scores, for single inputs and for a batch.

    Returns medians and quartiles: `latency_ms` of a single input, `throughput` in inputs per second and, for
    a `RandomSetNetwork`, the time relative to a softmax model with the same backbone, `ratio_single` and
    `ratio_batch`. Calls to the two models alternate, so that other load affects both equally.
    """
    if repeats < 1 or warm_up < 0 or not len(inputs):
        raise RandomSetError("nothing to time", got=f"{repeats} repeats of {len(inputs)} inputs")
    predictor, one, many = as_predictor(model), inputs[:1], inputs[:batch_size]
    plain = model.softmax_counterpart() if isinstance(model, Classifier) else None
    reference = None if plain is None else softmax_predictor(plain)
    measured: dict[str, Any] = {"batch_size": len(many), "repeats": repeats}
    for name, batch in (("single", one), ("batch", many)):
        ours, theirs = _times(predictor, reference, batch, repeats, warm_up)
        if name == "single":
            measured["latency_ms"] = _quartiles(1e3 * ours)
        else:
            measured["throughput"] = _quartiles(len(batch) / ours)
        if theirs is not None:
            measured[f"ratio_{name}"] = _quartiles(ours / theirs)
    return measured


def in_turns(models: Mapping[str, Any], one: Tensor, rounds: int = 30) -> dict[str, float]:
    """Return the median time of a single prediction in milliseconds for several models.

    Calls to the models alternate, so that other load affects all of them equally.
    """
    predictors = {name: as_predictor(model) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in predictors}
    for turn in range(-3, rounds):
        for name, predictor in predictors.items():
            taken = _seconds(predictor, one)
            if turn >= 0:
                times[name].append(1e3 * taken)
    return {name: float(np.median(each)) for name, each in times.items()}


def _times(
    predictor: Predictor, reference: Predictor | None, batch: Tensor, repeats: int, warm_up: int
) -> tuple[Any, Any]:
    ours, theirs = np.empty(repeats), np.empty(repeats)
    for turn in range(-warm_up, repeats):
        first = _seconds(predictor, batch)
        second = 1.0 if reference is None else _seconds(reference, batch)
        if turn >= 0:
            ours[turn], theirs[turn] = first, second
    return ours, None if reference is None else theirs


def _seconds(call: Callable[[Any], Any], batch: Tensor) -> float:
    start = time.perf_counter()
    call(batch)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _quartiles(values: Any) -> dict[str, float]:
    low, middle, high = np.percentile(values, (25, 50, 75))
    return {"median": float(middle), "low": float(low), "high": float(high)}
