"""What most of the paper's tables show: accuracy, calibration, entropy, width and detection, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from randomset.evaluation import Evaluation
from randomset.evaluation.predictor import as_predictor
from randomset.evaluation.sweeps import pixels_of
from randomset.training.config import TrainConfig
from reproduction.exhibit import Numbers, mean_of, over_seeds
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

__all__ = ["beside", "every_model", "known_digit", "lead", "quality"]


def quality(results: Sequence[Evaluation]) -> Numbers:
    """Collect the numbers of a model over seeds: lists by name, for the test data and every unknown set."""

    def moments(get: Any) -> Numbers:
        return {part: [get(one)[part] for one in results] for part in ("mean", "std")}

    found: Numbers = {
        **{name: [one["test"][name] for one in results] for name in ("accuracy", "ece", "nll")},
        "entropy": moments(lambda one: one["test"]["scores"]["entropy"]),
        "unknown": {},
    }
    if all("scaled" in one["test"] for one in results):
        found["scaled ece"] = [one["test"]["scaled"]["ece"] for one in results]
    bounded = "credal width" in results[0]["test"]["scores"]
    if bounded:
        found["width"] = moments(lambda one: one["test"]["scores"]["credal width"])
    for name in results[0]["ood"]:

        def scores(one: Evaluation, score: str, name: str = name) -> Any:
            return one["ood"][name]["scores"][score]

        found["unknown"][name] = {
            **{part: [scores(one, "entropy")[part] for one in results] for part in ("auroc", "auprc")},
            "entropy": moments(lambda one: scores(one, "entropy")["unknown"]),
        }
        if bounded:
            found["unknown"][name] |= {
                "width": moments(lambda one: scores(one, "credal width")["unknown"]),
                "auroc by width": [scores(one, "credal width")["auroc"] for one in results],
            }
    return found


def every_model(
    shop: Workshop, data: Sequence[str], methods: Sequence[str] = tuple(METHODS), **changes: Any
) -> list[TrainConfig]:
    """Return the settings of methods on data sets with every seed."""
    return [
        shop.config(one, method, seed, **changes) for one in data for seed in shop.seeds for method in methods
    ]


def known_digit(shop: Workshop, digit: int) -> Tensor:
    """Return the first of a digit in MNIST's test data that RS-NN and CNN know, as pixels (1 × 1 × H × W)."""
    tested, _, _ = shop.data(shop.config("mnist"))
    right = torch.ones(len(tested), dtype=torch.bool)
    for method in ("rsnn", "softmax"):
        predictor = as_predictor(shop.model(shop.config("mnist", method)))
        right &= torch.cat([predictor(part).labels for part in tested.inputs.split(256)]) == tested.labels
    known = (right & (tested.labels == digit)).nonzero()
    return pixels_of(tested.inputs[int(known[0]) : int(known[0]) + 1])


def beside(ours: str, printed: float | None, digits: int = 2) -> str:
    """Write what was measured, and what the paper prints in brackets.

    >>> beside("98.0", 93.89), beside("98.0", None)
    ('98.0 (93.89)', '98.0')
    """
    return ours if printed is None else f"{ours} ({printed:.{digits}f})"


def lead(values: dict[str, Sequence[float]], scale: float = 100, digits: int = 2) -> str:
    """Say how far RS-NN is ahead of the best of the others, seed by seed.

    >>> lead({"rsnn": [0.9, 0.9], "softmax": [0.8, 0.7]})
    '+15.00 ± 7.07 to CNN'
    """
    others = {name: each for name, each in values.items() if name != "rsnn"}
    best = max(others, key=lambda name: mean_of(others[name]))
    gaps = [ours - theirs for ours, theirs in zip(values["rsnn"], others[best], strict=True)]
    text = over_seeds(gaps, scale, digits)
    return f"{'' if text.startswith('-') else '+'}{text} to {METHODS[best]}"
