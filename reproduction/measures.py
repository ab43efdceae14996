"""Measurements shared by most tables: accuracy, calibration, entropy, credal width and OOD detection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from randomset.evaluation import Evaluation
from randomset.evaluation.predictor import as_predictor
from randomset.evaluation.robustness import pixels_of
from randomset.training.config import TrainConfig
from reproduction.exhibit import Numbers, mean_of, over_seeds
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

__all__ = ["beside", "every_model", "known_digit", "lead", "quality"]


def quality(results: Sequence[Evaluation]) -> Numbers:
    """Collect the measurements of a model: lists over seeds, by name, for test and unknown data."""

    def moments(scores: Callable[[Evaluation], Any]) -> Numbers:
        return {part: [scores(result)[part] for result in results] for part in ("mean", "std")}

    numbers: Numbers = {
        **{name: [result["test"][name] for result in results] for name in ("accuracy", "ece", "nll")},
        "entropy": moments(lambda result: result["test"]["scores"]["entropy"]),
        "unknown": {},
    }
    if all("scaled" in result["test"] for result in results):
        numbers["scaled ece"] = [result["test"]["scaled"]["ece"] for result in results]
    has_width = "credal width" in results[0]["test"]["scores"]
    if has_width:
        numbers["width"] = moments(lambda result: result["test"]["scores"]["credal width"])
    for name in results[0]["ood"]:

        def scores(result: Evaluation, score: str, name: str = name) -> Any:
            return result["ood"][name]["scores"][score]

        numbers["unknown"][name] = {
            **{part: [scores(result, "entropy")[part] for result in results] for part in ("auroc", "auprc")},
            "entropy": moments(lambda result: scores(result, "entropy")["unknown"]),
        }
        if has_width:
            numbers["unknown"][name] |= {
                "width": moments(lambda result: scores(result, "credal width")["unknown"]),
                "auroc by width": [scores(result, "credal width")["auroc"] for result in results],
            }
    return numbers


def every_model(
    shop: Workshop, data: Sequence[str], methods: Sequence[str] = tuple(METHODS), **changes: Any
) -> list[TrainConfig]:
    """Return the configurations of methods on data sets for all seeds."""
    return [
        shop.config(name, method, seed, **changes)
        for name in data
        for seed in shop.seeds
        for method in methods
    ]


def known_digit(shop: Workshop, digit: int) -> Tensor:
    """Return the first test image of a digit that RS-NN and CNN both classify correctly (1 × 1 × H × W)."""
    tested, _, _ = shop.data(shop.config("mnist"))
    correct = torch.ones(len(tested), dtype=torch.bool)
    for method in ("rsnn", "softmax"):
        predictor = as_predictor(shop.model(shop.config("mnist", method)))
        correct &= torch.cat([predictor(batch).labels for batch in tested.inputs.split(256)]) == tested.labels
    first = int((correct & (tested.labels == digit)).nonzero()[0])
    return pixels_of(tested.inputs[first : first + 1])


def beside(measured: str, printed: float | None, digits: int = 2) -> str:
    """Format a measured value, with the paper's value in parentheses.

    >>> beside("98.0", 93.89), beside("98.0", None)
    ('98.0 (93.89)', '98.0')
    """
    return measured if printed is None else f"{measured} ({printed:.{digits}f})"


def lead(values: Mapping[str, Sequence[float]], scale: float = 100, digits: int = 2) -> str:
    """Format the difference between RS-NN and the best other method, seed by seed.

    >>> lead({"rsnn": [0.9, 0.9], "softmax": [0.8, 0.7]})
    '+15.00 ± 7.07 vs. CNN'
    """
    others = {method: each for method, each in values.items() if method != "rsnn"}
    best = max(others, key=lambda method: mean_of(others[method]))
    gaps = [rsnn - other for rsnn, other in zip(values["rsnn"], others[best], strict=True)]
    text = over_seeds(gaps, scale, digits)
    return f"{'' if text.startswith('-') else '+'}{text} vs. {METHODS[best]}"
