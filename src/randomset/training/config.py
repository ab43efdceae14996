"""The settings of a training run: recipes, and the configuration that is stored in the run folder."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import lr_scheduler

import randomset
from randomset._core.checks import is_number, is_whole
from randomset._core.files import expanded, read_document, write_document
from randomset.budgeting.overlap import check_num_sets
from randomset.budgeting.reduce import check_reducer
from randomset.errors import FileFormatError, RandomSetError
from randomset.models.ensemble import ensemble_of
from randomset.models.reliability import check_reliability
from randomset.models.storage import classifier_class

__all__ = ["Recipe", "TrainConfig"]


@dataclass
class Recipe:
    """Optimizer, schedule, epochs, batch size and augmentation of a training run.

    Args:
        optimizer: "adam", "adamw" or "sgd" (with Nesterov momentum 0.9).
        learning_rate: the maximum learning rate.
        backbone_share: learning rate of the backbone relative to `learning_rate`; below 1 for fine-tuning.
        schedule: "one-cycle" (up, then down to nearly zero), "steps" (multiplied by `factor` at each of
            `milestones`), "cosine" or "constant".
        milestones: epochs at which "steps" changes the learning rate.
        factor: factor of "steps".
        weight_decay: decoupled for "adamw"; biases and normalisation layers are exempt.
        epochs: number of epochs.
        batch_size: global batch size over all processes.
        shift: maximum random shift of images, as a fraction of their width and height.
        flip: whether to flip images horizontally with probability 0.5.
        clip: maximum gradient norm; None disables clipping.

    >>> dataclasses.replace(Recipe.paper(), epochs=100, milestones=(40, 60, 80, 90)).learning_rate
    0.001
    """

    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    learning_rate: float = 3e-3
    backbone_share: float = 1.0
    schedule: Literal["one-cycle", "steps", "cosine", "constant"] = "one-cycle"
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    weight_decay: float = 1e-2
    epochs: int = 30
    batch_size: int = 128
    shift: float = 0.0
    flip: bool = False
    clip: float | None = None

    @classmethod
    def fast(cls) -> Recipe:
        """Return the recipe for short schedules: AdamW with a one-cycle learning rate."""
        return cls()

    @classmethod
    def fast_head(cls) -> Recipe:
        """Return `fast` with ten times the learning rate for the head; for random-set heads."""
        return cls(learning_rate=3e-2, backbone_share=0.1)

    @classmethod
    def paper(cls) -> Recipe:
        """Return the paper's recipe: Adam, 1e-3, ×0.1 at epochs 80, 120, 160, 180 of 200, shift and flip."""
        return cls(
            optimizer="adam",
            learning_rate=1e-3,
            schedule="steps",
            milestones=(80, 120, 160, 180),
            weight_decay=0.0,
            epochs=200,
            shift=0.1,
            flip=True,
        )

    @classmethod
    def text(cls) -> Recipe:
        """Return the paper's recipe for texts: Adam at 3e-5, batch size 32, 10 epochs."""
        return cls(
            optimizer="adam",
            learning_rate=3e-5,
            schedule="constant",
            weight_decay=0.0,
            epochs=10,
            batch_size=32,
        )

    @classmethod
    def named(cls, recipe: str | Recipe, **changes: Any) -> Recipe:
        """Return a copy of a recipe, given by name or as an object, with changes; None values are ignored.

        >>> Recipe.named("fast", epochs=3).epochs
        3
        """
        known = {"paper": cls.paper, "fast": cls.fast, "fast-head": cls.fast_head, "text": cls.text}
        if isinstance(recipe, str):
            if recipe not in known:
                raise RandomSetError(
                    "unknown recipe", got=recipe, expected=f"one of {', '.join(known)}, or a Recipe"
                )
            recipe = known[recipe]()
        if not isinstance(recipe, cls):
            raise RandomSetError("invalid recipe", got=type(recipe).__name__, expected="a name or a Recipe")
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(recipe, **changes).checked()

    def checked(self) -> Recipe:
        """Validate all fields and return self."""
        for name in ("epochs", "batch_size"):
            if not is_whole(getattr(self, name), 1):
                raise RandomSetError(
                    f"{name} is out of range", got=getattr(self, name), expected="a positive integer"
                )
            setattr(self, name, int(getattr(self, name)))
        for name in ("learning_rate", "backbone_share", "weight_decay"):
            value = getattr(self, name)
            if not is_number(value):
                raise RandomSetError(f"{name} is out of range", got=value, expected="a non-negative number")
            setattr(self, name, float(value))
        if not 0 <= self.shift < 1:
            raise RandomSetError("shift is out of range", got=self.shift, expected="0 ≤ shift < 1")
        for name, choice, allowed in (
            ("optimizer", str(self.optimizer), _OPTIMIZERS),
            ("schedule", str(self.schedule), _SCHEDULES),
        ):
            if choice not in allowed:
                raise RandomSetError(f"unknown {name}", got=choice, expected=f"one of {', '.join(allowed)}")
        return self

    def differences(self, other: Recipe) -> list[str]:
        """List the fields whose change prevents resuming with this recipe.

        The number of epochs may change, unless the schedule depends on it.
        """
        ours, theirs = self.as_dict(), other.as_dict()
        if self.schedule in ("steps", "constant"):
            theirs["epochs"] = ours["epochs"]
        return [f"{name} {theirs[name]} → {ours[name]}" for name in ours if ours[name] != theirs[name]]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-serialisable dictionary."""
        return {**dataclasses.asdict(self), "milestones": list(self.milestones)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Recipe:
        """Create a recipe from `as_dict`; raise on unknown fields."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := set(fields) - known:
            raise RandomSetError(
                "unknown recipe field", got=", ".join(sorted(unknown)), expected=", ".join(sorted(known))
            )
        fields = {**fields, "milestones": tuple(fields.get("milestones", ()))}
        return cls(**fields).checked()

    def optimizer_for(self, modules: Iterable[nn.Module]) -> torch.optim.Optimizer:
        """Build the optimizer for all trainable parameters."""
        modules = list(modules)
        every = [p for module in modules for p in module.parameters() if p.requires_grad]
        if not every:
            raise RandomSetError("no trainable parameters", got="a network whose weights are all frozen")
        slow: set[nn.Parameter] = set()
        if self.backbone_share != 1:
            backbones = (getattr(module, "backbone", None) for module in modules)
            slow = {p for part in backbones if isinstance(part, nn.Module) for p in part.parameters()}
        groups = [
            {
                "params": [p for p in every if (p.dim() > 1) == decays and (p in slow) == is_slow],
                "weight_decay": self.weight_decay if decays else 0.0,
                "lr": self.learning_rate * (self.backbone_share if is_slow else 1),
            }
            for is_slow in (False, True)
            for decays in (True, False)
        ]
        return _OPTIMIZERS[self.optimizer]([group for group in groups if group["params"]], self.learning_rate)

    def scheduler_for(self, optimizer: torch.optim.Optimizer, steps: int) -> dict[str, Any]:
        """Build the learning-rate scheduler in Lightning's format."""
        scheduler, interval = _SCHEDULES[self.schedule](self, optimizer, steps)
        return {"scheduler": scheduler, "interval": interval}


_OPTIMIZERS: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": lambda groups, rate: torch.optim.SGD(groups, rate, momentum=0.9, nesterov=True),
}


def _one_cycle(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    """Cosine warm-up from 1/25 over a quarter of the steps, then cosine decay to zero."""

    def share(step: int) -> float:
        rise = max(steps / 4, 1)
        if step < rise:
            return 0.04 + 0.96 * (1 - math.cos(math.pi * step / rise)) / 2
        return (1 + math.cos(math.pi * min((step - rise) / max(steps - rise, 1), 1))) / 2

    return lr_scheduler.LambdaLR(optimizer, share), "step"


def _steps(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    return lr_scheduler.MultiStepLR(optimizer, list(recipe.milestones), recipe.factor), "epoch"


def _cosine(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    return lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1)), "step"


def _constant(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    return lr_scheduler.ConstantLR(optimizer, factor=1.0), "epoch"


_SCHEDULES: dict[str, Any] = {
    "one-cycle": _one_cycle,
    "steps": _steps,
    "cosine": _cosine,
    "constant": _constant,
}


# -- the configuration -----------------------------------------------------------------------------


_FORMAT, _VERSION = "randomset.run", 1


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
    max_tokens: int = 256
    num_sets: int | Literal["auto"] = 20
    reducer: str = "pca"
    hidden: tuple[int, ...] = ()
    members: int | None = None
    alpha: float = 1e-3
    beta: float = 1e-3
    reliability: str = "auto"
    recipe: str = "fast"
    epochs: int | None = None
    first_epochs: int | None = None
    from_first: bool = False
    batch_size: int | None = None
    learning_rate: float | None = None
    validation: float = 0.1
    calibration: float = 0.05
    test: float = 0.2
    seed: int = 0

    def plan(self, samples: int | None = None, epochs: int | None = None, *, plain: bool = False) -> Recipe:
        """Return the recipe with this configuration's changes.

        "fast-head" applies to random-set heads only: baselines, and the plain network trained first, use
        "fast", since a softmax head at the higher rate can destroy the backbone. Without a batch size, small
        data sets are split into about twenty batches. Pretrained weights that are not frozen are trained at
        a tenth of the fast recipe's learning rate, the new head at the full rate.
        """
        name = self.recipe
        if name == "fast-head" and (plain or not classifier_class(self.method).chooses_sets):
            name = "fast"
        epochs = self.epochs if epochs is None else epochs
        recipe = Recipe.named(name, epochs=epochs, learning_rate=self.learning_rate)
        if self.weights != "none" and not self.freeze and self.recipe == "fast" and not self.learning_rate:
            recipe = Recipe.named(recipe, backbone_share=0.1)
        suited = None if samples is None else max(16, 2 ** round(math.log2(max(samples / 20, 1))))
        size = (suited and min(suited, recipe.batch_size)) if self.batch_size is None else self.batch_size
        return Recipe.named(recipe, batch_size=size)

    def checked(self) -> TrainConfig:
        """Return the configuration if it is valid; raise before any work or file otherwise."""
        self.plan()
        if self.first_epochs is not None:
            self.plan(epochs=self.first_epochs)
        if not is_whole(self.seed, 0):
            raise RandomSetError("seed is out of range", got=self.seed, expected="a non-negative integer")
        # The number of classes, which bounds the number of sets, is not known yet.
        check_num_sets(0 if is_whole(self.num_sets, 0) else self.num_sets, 2)
        for name in ("alpha", "beta", "validation", "calibration", "test"):
            value = getattr(self, name)
            if not is_number(value):
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
        if self.from_first and (self.freeze or not cls.chooses_sets):
            raise RandomSetError(
                "from_first needs a plain network to start from",
                got="from_first with " + ("freeze" if self.freeze else f"the method {self.method}"),
                expected="method rsnn or random-set-ensemble, without freeze",
            )
        if self.freeze and self.recipe == "text" and self.learning_rate is None:
            raise RandomSetError(
                "the text recipe is for fine-tuning: its learning rate is too low to train only a head",
                got="freeze with the recipe text",
                remedy="Omit the recipe, or pass a learning rate",
            )
        for name in (
            "source",
            "backbone",
            "reducer",
            "reliability",
            "recipe",
            "weights",
            "label_column",
            "text_column",
        ):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or not name.endswith("_column")):
                raise RandomSetError(f"{name} must be a string", got=value)
        for name in ("freeze", "from_first"):
            if not isinstance(getattr(self, name), bool):
                raise RandomSetError(f"{name} must be true or false", got=getattr(self, name))
        check_reducer(self.reducer)
        if check_reliability(self.reliability) not in ("auto", "none") and not cls.bounded:
            raise RandomSetError(
                "only random-set networks have a reliability",
                got=f"reliability {self.reliability} with the method {self.method}",
            )
        return self

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
        if not isinstance(fields, dict) or (unknown := set(fields) - known):
            got = ", ".join(sorted(unknown)) if isinstance(fields, dict) else type(fields).__name__
            raise FileFormatError("the configuration has unknown fields", got=f"{file}: {got}")
        try:
            return cls(**{**fields, "hidden": tuple(fields.get("hidden", ()))}).checked()
        except (TypeError, RandomSetError) as error:
            raise FileFormatError("the configuration is invalid", got=f"{file}: {error}") from None
