"""The configuration of a training run, which is stored in the run folder."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import randomset
from randomset._core.checks import is_number, is_whole
from randomset._core.files import expanded, read_document, write_document
from randomset.budgeting.overlap import check_num_sets
from randomset.budgeting.reduce import check_reducer
from randomset.data.splits import resolved
from randomset.errors import FileFormatError, RandomSetError
from randomset.models.ensemble import ensemble_of
from randomset.models.reliability import MIN_VALIDATION, check_reliability
from randomset.models.storage import classifier_class
from randomset.training.augmentation import check_augmentation
from randomset.training.balance import ClassWeight, checked_class_weight
from randomset.training.recipe import Recipe

__all__ = ["TrainConfig"]


_FORMAT, _VERSION = "randomset.run", 1
_GAMMA = 0.3
_HEAD_RATE = 3
"""Learning rate of a head that joins a trained backbone, relative to the recipe's."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that determines how a model is trained; saved as `config.json` in the run folder."""

    source: str = ""
    method: str = "rsnn"
    size: int | None = None
    label_column: str | None = None
    text_column: str | None = None
    backbone: str = "auto"
    width: int | None = None
    weights: str = "none"
    freeze: bool = False
    mirror: bool = False
    max_tokens: int = 256
    num_sets: int | Literal["auto"] = 20
    reducer: str = "pca"
    hidden: tuple[int, ...] = ()
    members: int | None = None
    alpha: float = 1e-3
    beta: float = 1e-3
    gamma: float | None = None
    reliability: str = "auto"
    recipe: str = "fast"
    epochs: int | None = None
    first_epochs: int | None = None
    from_scratch: bool = False
    batch_size: int | None = None
    learning_rate: float | None = None
    class_weight: ClassWeight = None
    sampling: Literal["uniform", "balanced"] | None = None
    augment: str | None = None
    ema: float | None = None
    keep: Literal["last", "best"] = "last"
    validation: float = 0.1
    calibration: float = 0.05
    test: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_weight", checked_class_weight(self.class_weight))  # hashable

    def plan(self, samples: int | None = None, epochs: int | None = None, *, plain: bool = False) -> Recipe:
        """Return the recipe with this configuration's changes.

        "fast-head" applies to random-set heads only: baselines, and the plain network trained first, use
        "fast", since a softmax head at the higher rate can destroy the backbone. Without a batch size, small
        data sets are split into about twenty batches. Pretrained weights that are not frozen are trained at
        a tenth of the fast recipe's learning rate, the new head at the full rate; so are backbones with
        "speed", unless `from_scratch`. With "speed", the labels of random-set networks are not
        smoothed: smoothing did not improve accuracy and impaired the detection of unknown inputs.
        """
        name = self.recipe
        if name == "fast-head" and (plain or not classifier_class(self.method).chooses_sets):
            name = "fast"
        epochs = self.epochs if epochs is None else epochs
        changes = {field: getattr(self, field) for field in ("class_weight", "sampling", "augment", "ema")}
        recipe = Recipe.named(name, epochs=epochs, learning_rate=self.learning_rate, **changes)
        if self.weights != "none" and not self.freeze and self.recipe == "fast" and not self.learning_rate:
            recipe = Recipe.named(recipe, backbone_share=0.1)
        if name == "speed" and classifier_class(self.method).chooses_sets and not plain:
            recipe = Recipe.named(
                recipe, label_smoothing=0.0, backbone_share=0.1 if self.starts_plain else None
            )
        suited = None if samples is None else max(16, 2 ** round(math.log2(max(samples / 20, 1))))
        size = (suited and min(suited, recipe.batch_size)) if self.batch_size is None else self.batch_size
        return Recipe.named(recipe, batch_size=size)

    @property
    def starts_plain(self) -> bool:
        """Whether a random-set network starts as a plain softmax network, which is then trained with sets."""
        chooses = classifier_class(self.method).chooses_sets
        return chooses and not (self.from_scratch or self.freeze or self.recipe == "paper")

    @property
    def likelihood_weight(self) -> float:
        """The weight γ of the likelihood in the loss: 0, as in the paper, for training from scratch."""
        if self.gamma is not None:
            return self.gamma
        return 0.0 if self.from_scratch or self.recipe == "paper" else _GAMMA

    def phases(self, samples: int) -> tuple[Recipe, Recipe]:
        """Return the recipes of the plain network and of the random-set network.

        If the latter starts from the former, they share the epochs, by default half each, or two thirds and
        one third with "speed", and the new head learns faster than the backbone.
        """
        recipe = self.plan(samples)
        if not self.starts_plain:
            return self.plan(samples, self.first_epochs, plain=True), recipe
        usual = 2 * recipe.epochs // 3 if self.recipe == "speed" else recipe.epochs // 2
        first = self.first_epochs or max(usual, 1)
        plain = self.plan(samples, first, plain=True)
        rate, share = recipe.learning_rate * _HEAD_RATE, recipe.backbone_share / _HEAD_RATE
        if self.recipe in ("fast-head", "speed"):
            rate, share = recipe.learning_rate, recipe.backbone_share
        rest = max(recipe.epochs - first, 1)
        return plain, dataclasses.replace(recipe, epochs=rest, learning_rate=rate, backbone_share=share)

    def checked(self) -> TrainConfig:
        """Return the configuration if it is valid; raise before any work or file otherwise."""
        epochs = self.plan().epochs
        if self.first_epochs is not None:
            self.plan(epochs=self.first_epochs)
            if self.starts_plain and self.first_epochs >= epochs:
                raise RandomSetError(
                    "no epochs are left to train with sets",
                    got=f"{self.first_epochs} of {epochs} epochs for the plain network",
                    remedy="Use fewer first epochs, or more epochs",
                )
        if not is_whole(self.seed, 0):
            raise RandomSetError("seed is out of range", got=self.seed, expected="a non-negative integer")
        # The number of classes, which bounds the number of sets, is not known yet.
        check_num_sets(0 if is_whole(self.num_sets, 0) else self.num_sets, 2)
        for name in ("alpha", "beta", "gamma", "validation", "calibration", "test"):
            value = getattr(self, name)
            if not is_number(value) and not (name == "gamma" and value is None):
                raise RandomSetError(f"{name} is out of range", got=value, expected="a non-negative number")
        held_out = {name: getattr(self, name) for name in ("validation", "calibration", "test")}
        if sum(value for value in held_out.values() if not is_whole(value, 1)) >= 1:
            raise RandomSetError(
                "no samples are left to train on",
                got=" and ".join(f"{name} {value}" for name, value in held_out.items()),
                expected="shares that sum to less than 1, or numbers of samples",
            )
        if not all(is_whole(width, 1) for width in self.hidden):
            raise RandomSetError("hidden is out of range", got=self.hidden, expected="positive integers")
        for name in ("size", "width", "max_tokens"):
            if getattr(self, name) is not None and not is_whole(getattr(self, name), 1):
                raise RandomSetError(f"{name} is out of range", got=getattr(self, name), expected="1 or more")
        cls = classifier_class(self.method)
        if self.members is not None:
            if not is_whole(self.members, 2):
                raise RandomSetError("members is out of range", got=self.members, expected="2 or more")
            if ensemble_of(self.method) != self.method:
                raise RandomSetError(
                    "this method trains a single network",
                    got=f"{self.members} members of {self.method}",
                    remedy=f"Choose the method {ensemble_of(self.method)}",
                )
        if self.freeze and self.weights == "none":
            raise RandomSetError(
                "freezing a backbone without pretrained weights would leave it random",
                got="freeze without weights",
                remedy='Pass weights="default", or a file',
            )
        on_images = check_augmentation("none" if self.augment is None else self.augment) - {"mixup"}
        if self.freeze and on_images:
            raise RandomSetError(
                "the features of a frozen backbone are computed once, so images cannot be augmented",
                got=f"freeze with the augmentation {'+'.join(sorted(on_images))}",
                expected="mixup, which mixes features, or none",
            )
        if self.keep not in ("last", "best"):
            raise RandomSetError("unknown value for keep", got=self.keep, expected="'last' or 'best'")
        if self.keep == "best" and not self.validation:
            raise RandomSetError(
                "keeping the best epoch requires validation data", got="keep best with validation 0"
            )
        if not self.validation and self.reliability in ("neighbours", "gaussians"):
            raise RandomSetError(
                "a reliability is fitted to validation data",
                got=f"reliability {self.reliability} with validation 0",
                expected=f"{MIN_VALIDATION} samples or more",
            )
        if self.freeze and self.recipe == "text" and self.learning_rate is None:
            raise RandomSetError(
                "the text recipe is for fine-tuning: its learning rate is too low to train only a head",
                got="freeze with the recipe text",
                remedy="Omit the recipe, or pass a learning rate",
            )
        for name in ("source", "backbone", "reducer", "reliability", "recipe", "weights"):
            if not isinstance(value := getattr(self, name), str):
                expected = "auto, neighbours, gaussians or none" if name == "reliability" else ""
                raise RandomSetError(f"{name} must be a string", got=repr(value), expected=expected)
        for name in ("label_column", "text_column"):
            if not isinstance(getattr(self, name), (str, NoneType)):
                raise RandomSetError(f"{name} must be a string or None", got=getattr(self, name))
        for name in ("freeze", "mirror", "from_scratch"):
            if not isinstance(getattr(self, name), bool):
                raise RandomSetError(f"{name} must be true or false", got=getattr(self, name))
        check_reducer(self.reducer)
        if check_reliability(self.reliability) not in ("auto", "none") and not cls.bounded:
            raise RandomSetError(
                "only random-set networks have a reliability",
                got=f"reliability {self.reliability} with the method {self.method}",
            )
        return self

    def located(self) -> TrainConfig:
        """Return the configuration with absolute paths, so that its run can be used from any folder."""
        library, _, name = self.backbone.partition(":")
        backbone = f"hf:{resolved(name)}" if library == "hf" else self.backbone
        weights = self.weights if self.weights in ("none", "default") else resolved(self.weights)
        return dataclasses.replace(self, source=resolved(self.source), backbone=backbone, weights=weights)

    def save(self, path: Path) -> None:
        """Write the configuration as JSON."""
        content = {"randomset": randomset.__version__, "config": dataclasses.asdict(self)}
        write_document(content, path, _FORMAT, _VERSION, indent=2)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TrainConfig:
        """Load the configuration from a run folder or a file."""
        path = expanded(path)
        file = path / "config.json" if path.is_dir() else path
        content = read_document(file, _FORMAT, _VERSION, "the configuration")
        fields, known = content.get("config"), {field.name for field in dataclasses.fields(cls)}
        known.add("from_first")
        if not isinstance(fields, dict) or (unknown := set(fields) - known):
            got = ", ".join(sorted(unknown)) if isinstance(fields, dict) else type(fields).__name__
            raise FileFormatError("the configuration has unknown fields", got=f"{file}: {got}")
        try:
            return cls(**{**_current(fields), "hidden": tuple(fields.get("hidden", ()))}).checked()
        except (TypeError, RandomSetError) as error:
            raise FileFormatError("the configuration is invalid", got=f"{file}: {error}") from None


def _current(fields: dict[str, Any]) -> dict[str, Any]:
    """Translate the fields of a stored configuration to their current names.

    Earlier versions trained random-set networks from scratch, or after a plain network with as many epochs.
    """
    if "from_scratch" in fields or fields.get("method", "rsnn") != "rsnn":
        return {name: value for name, value in fields.items() if name != "from_first"}
    fields = {**fields, "from_scratch": not fields.get("from_first", False)}
    if fields.pop("from_first", False) and fields.get("recipe") != "paper":
        epochs = fields.get("epochs") or Recipe.named(fields.get("recipe", "fast")).epochs
        first = fields.get("first_epochs") or epochs
        fields |= {"first_epochs": first, "epochs": first + epochs, "gamma": 0.0}
    return fields
