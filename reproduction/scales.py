"""Data and networks at each scale: tiny (seconds), cpu (a desktop computer), full (the paper's)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from randomset.errors import RandomSetError
from randomset.evaluation.robustness import EPSILONS
from reproduction import small_data

__all__ = ["METHODS", "SCALES", "Scale", "Setting"]

METHODS = {
    "rsnn": "RS-NN",
    "laplace-bridge": "LB-BNN",
    "fsvi": "FSVI",
    "ensemble": "DE",
    "epinet": "ENN",
    "softmax": "CNN",
}
"""Names of the methods in this library, and in the paper."""


@dataclass(frozen=True)
class Setting:
    """One of the paper's data sets: training data, unknown data by name, and training options.

    `made` generates data that are not published in a folder, and returns the options that refer to them.
    """

    source: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    made: Callable[[Path], dict[str, Any]] | None = None


@dataclass(frozen=True)
class Scale:
    """Settings by data set of the paper, and the numbers of seeds and samples."""

    name: str
    settings: Mapping[str, Setting]
    seeds: int
    unknown_samples: int | None
    changed_samples: int
    attacked_samples: int
    epsilons: tuple[float, ...] = EPSILONS

    def setting(self, data: str, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the training options of a data set of the paper, and its unknown data by name."""
        if data not in self.settings:
            raise RandomSetError("data set not available at this scale", got=f"{data} at {self.name}")
        setting = self.settings[data]
        options, unknown = dict(setting.options), dict(setting.unknown)
        if setting.source:
            options["source"] = setting.source
        if setting.made is not None:
            made = setting.made(folder)
            unknown |= made.pop("unknown")
            options |= made
        return options, unknown


_DIGITS: dict[str, Any] = {"source": "digits", "options": {"epochs": 4, "num_sets": 8}}
_PAPER: dict[str, Any] = {
    **{"backbone": "torchvision:resnet50", "hidden": (1024, 512), "size": 224, "recipe": "paper"},
    **{"reducer": "tsne", "num_sets": 20},
}


def _digits(names: Mapping[str, str]) -> Setting:
    """Use scikit-learn's digits, with transformed digits as unknown data."""
    return Setting(**_DIGITS, made=lambda folder: small_data.changed_digits(folder, names))


SCALES = {
    "tiny": Scale(
        "tiny",
        {
            "mnist": _digits({"fashion-mnist": "scrambled", "kmnist": "turned"}),
            "cifar10": _digits({"svhn": "scrambled", "intel": "turned", "cifar100": "mirrored"}),
            "intel": _digits({"svhn": "scrambled"}),
            "imagenet-vit": Setting(
                options={"epochs": 2, "num_sets": 4},
                made=lambda folder: small_data.some_classes(folder, "digits", 3, layers=1, width=16, patch=4),
            ),
            "text": Setting(options={"epochs": 2, "num_sets": 25}, made=small_data.sentences),
        },
        seeds=1,
        unknown_samples=None,
        changed_samples=20,
        attacked_samples=20,
        epsilons=(0.05,),
    ),
    "cpu": Scale(
        "cpu",
        {
            "mnist": Setting("mnist", {"fashion-mnist": "fashion-mnist", "kmnist": "kmnist"}, {"epochs": 6}),
            "cifar10": Setting(
                "cifar10", {"svhn": "svhn", "intel": "intel", "cifar100": "cifar100"}, {"epochs": 8}
            ),
            "intel": Setting("intel", {"svhn": "svhn", "cifar10": "cifar10"}, {"epochs": 12, "size": 32}),
            "imagenet-vit": Setting(
                options={"epochs": 30, "size": 64},
                made=lambda folder: small_data.some_classes(
                    folder, "imagenette", 3, layers=4, width=128, patch=8
                ),
            ),
            "text": Setting(
                "bbc",
                {"emotion": "emotion"},
                {"weights": "default", "freeze": True, "num_sets": 25},
                made=small_data.minilm,
            ),
        },
        seeds=3,
        unknown_samples=10_000,
        changed_samples=1000,
        attacked_samples=100,  # about 4,000 forward passes each
    ),
    "full": Scale(
        "full",
        {
            "mnist": Setting("mnist", {"fashion-mnist": "fashion-mnist", "kmnist": "kmnist"}, _PAPER),
            "cifar10": Setting("cifar10", {"svhn": "svhn", "intel": "intel", "cifar100": "cifar100"}, _PAPER),
            "intel": Setting("intel", {"svhn": "svhn", "cifar10": "cifar10"}, _PAPER),
            "cifar100": Setting("cifar100", {"cifar10": "cifar10"}, {**_PAPER, "num_sets": 200}),
            "imagenet": Setting(  # the only data set with pretrained networks in the paper
                "imagenet",
                {"imagenet-o": "imagenet-o"},
                {**_PAPER, "num_sets": 3000, "weights": "default", "hidden": ()},
            ),
            "imagenet-vit": Setting(
                "imagenet",
                {"imagenet-o": "imagenet-o"},
                {**_PAPER, "num_sets": 3000, "backbone": "timm:vit_base_patch16_224", "hidden": ()},
            ),
            "text": Setting(
                "bbc",
                {"emotion": "emotion"},
                {
                    "backbone": "hf:google/bert_uncased_L-4_H-512_A-8",
                    "weights": "default",
                    "recipe": "text",
                    "num_sets": 25,
                },
            ),
        },
        seeds=5,
        unknown_samples=10_000,
        changed_samples=10_000,
        attacked_samples=10_000,
    ),
}
