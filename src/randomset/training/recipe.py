"""Recipes: how to train. Plain dataclasses, to be edited with `dataclasses.replace` or by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import lr_scheduler

from randomset._core.checks import is_number, is_whole
from randomset.errors import RandomSetError

__all__ = ["Recipe"]


@dataclass
class Recipe:
    """Optimiser, schedule, length, batches and augmentation of a training.

    Args:
        optimizer: "adam", "adamw" or "sgd" (with Nesterov's momentum 0.9).
        learning_rate: the highest one.
        backbone_share: the backbone moves at this share of it: below 1 for weights that were trained before.
        schedule: "one-cycle" (up, then down to nearly zero), "steps" (times `factor` at each of
            `milestones`), "cosine" or "constant".
        milestones: epochs at which "steps" acts.
        factor: what "steps" multiplies the learning rate by.
        weight_decay: decoupled for "adamw"; biases and normalisations are exempt.
        epochs: how often the data are seen.
        batch_size: samples in one step, over all processes together.
        shift: images are moved by up to this share of their width and height.
        flip: whether images are mirrored left to right, half of the time.
        clip: the largest norm of a gradient, if any.

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
        """Return the recipe for short schedules: AdamW and one cycle of the learning rate."""
        return cls()

    @classmethod
    def fast_head(cls) -> Recipe:
        """Return the same with a head that learns ten times as fast as the backbone: for random-set heads."""
        return cls(learning_rate=3e-2, backbone_share=0.1)

    @classmethod
    def paper(cls) -> Recipe:
        """Return the paper's: Adam, 1e-3, ×0.1 at 80, 120, 160 and 180 of 200 epochs, shifts and flips."""
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
        """Return the paper's for texts: Adam at 3e-5 on batches of 32, 10 epochs."""
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
        """Return a copy of a recipe, by its name or itself, with changes; None changes nothing.

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
            raise RandomSetError(
                "this is no recipe", got=type(recipe).__name__, expected="a name or a Recipe"
            )
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(recipe, **changes).checked()

    def checked(self) -> Recipe:
        """Return itself if it can be followed, or say what cannot."""
        for name in ("epochs", "batch_size"):
            if not is_whole(getattr(self, name), 1):
                raise RandomSetError(
                    f"{name} is out of range", got=getattr(self, name), expected="a whole number from 1"
                )
            setattr(self, name, int(getattr(self, name)))
        for name in ("learning_rate", "backbone_share", "weight_decay"):
            value = getattr(self, name)
            if not is_number(value):
                raise RandomSetError(f"{name} is out of range", got=value, expected="a number from 0")
            setattr(self, name, float(value))
        if not 0 <= self.shift < 1:
            raise RandomSetError(
                "the shift is no share of an image", got=self.shift, expected="0 ≤ shift < 1"
            )
        for name, choice, allowed in (
            ("optimizer", str(self.optimizer), _OPTIMIZERS),
            ("schedule", str(self.schedule), _SCHEDULES),
        ):
            if choice not in allowed:
                raise RandomSetError(f"unknown {name}", got=choice, expected=f"one of {', '.join(allowed)}")
        return self

    def differences(self, other: Recipe) -> list[str]:
        """Name the fields that would make a resumed training another one than the one that began.

        The number of epochs may change, unless the schedule stretches over them.
        """
        ours, theirs = self.as_dict(), other.as_dict()
        if self.schedule in ("steps", "constant"):
            theirs["epochs"] = ours["epochs"]
        return [f"{name} {theirs[name]} → {ours[name]}" for name in ours if ours[name] != theirs[name]]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as what JSON can hold."""
        return {**dataclasses.asdict(self), "milestones": list(self.milestones)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Recipe:
        """Build from `as_dict`; unknown fields are refused by name."""
        known = {field.name for field in dataclasses.fields(cls)}
        if strange := set(fields) - known:
            raise RandomSetError(
                "a recipe has no such field",
                got=", ".join(sorted(strange)),
                expected=", ".join(sorted(known)),
            )
        fields = {**fields, "milestones": tuple(fields.get("milestones", ()))}
        return cls(**fields).checked()

    def optimizer_for(self, modules: Iterable[nn.Module]) -> torch.optim.Optimizer:
        """Build the optimiser of all parameters that are to be trained."""
        modules = list(modules)
        every = [p for module in modules for p in module.parameters() if p.requires_grad]
        if not every:
            raise RandomSetError("there is nothing to train", got="a network whose weights are all frozen")
        slow: set[nn.Parameter] = set()
        if self.backbone_share != 1:
            backbones = (getattr(module, "backbone", None) for module in modules)
            slow = {p for one in backbones if isinstance(one, nn.Module) for p in one.parameters()}
        groups = [
            {
                "params": [p for p in every if (p.dim() > 1) == decays and (p in slow) == behind],
                "weight_decay": self.weight_decay if decays else 0.0,
                "lr": self.learning_rate * (self.backbone_share if behind else 1),
            }
            for behind in (False, True)
            for decays in (True, False)
        ]
        return _OPTIMIZERS[self.optimizer]([group for group in groups if group["params"]], self.learning_rate)

    def scheduler_for(self, optimizer: torch.optim.Optimizer, steps: int) -> dict[str, Any]:
        """Build the schedule, in the form that Lightning takes."""
        scheduler, interval = _SCHEDULES[self.schedule](self, optimizer, steps)
        return {"scheduler": scheduler, "interval": interval}


_OPTIMIZERS: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": lambda groups, rate: torch.optim.SGD(groups, rate, momentum=0.9, nesterov=True),
}


def _one_cycle(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    """A quarter of the steps up from a 25th, the rest down to zero, both along half a cosine."""

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
