"""Recipes: optimizer, schedule, epochs, batch size and augmentation of a training run."""

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
from randomset.training.augmentation import check_augmentation
from randomset.training.balance import ClassWeight, checked_class_weight
from randomset.training.muon import Muon

__all__ = ["Recipe"]

_NAMES = ("paper", "fast", "fast-head", "speed", "text")  # of the class methods, with underscores


@dataclass
class Recipe:
    """Optimizer, schedule, epochs, batch size and augmentation of a training run.

    Args:
        optimizer: "adam", "adamw", "sgd" (with Nesterov momentum 0.9) or "muon" (orthogonalised steps for
            convolutions, and AdamW for all other weights).
        learning_rate: the maximum learning rate.
        backbone_share: learning rate of the backbone relative to `learning_rate`; below 1 for fine-tuning.
        schedule: "one-cycle" (up, then down to nearly zero), "triangular" (the same in straight lines),
            "steps" (multiplied by `factor` at each of `milestones`), "cosine" or "constant".
        milestones: epochs at which "steps" changes the learning rate.
        factor: factor of "steps".
        weight_decay: decoupled for "adamw" and "muon"; biases and normalisation layers are exempt.
        epochs: number of epochs.
        batch_size: global batch size over all processes.
        shift: maximum random shift of images, as a fraction of their width and height.
        flip: whether to flip images horizontally with probability 0.5.
        label_smoothing: share ε of the label's probability that is spread evenly over the N classes; the
            target has the probabilities 1 − ε + ε/N and ε/N. Only class indices are smoothed.
        clip: maximum gradient norm; None disables clipping.
        augment: augmentation by name, which replaces `shift` and `flip`: "none", "flip", "shift" (up to
            an eighth), "photos" (flips, crops, brightness, contrast), "randaugment" (of torchvision),
            "mixup", or several joined by "+".
        class_weight: weights of the classes in the loss: "balanced" (inversely proportional to the numbers of
            training samples), weights by class name (1 for classes that are not named), or a list with one
            for each class. A set-valued label has the mean weight of its classes.
        sampling: "uniform" draws every training sample once per epoch; "balanced" draws as many in total, but
            each class equally often.
        ema: decay of an exponential moving average of the weights, such as 0.999. The average, which includes
            BatchNorm's statistics, is validated, saved and kept. In step t the decay is at most
            (1 + t)/(10 + t), so that the average also keeps up in a short run. None disables averaging.

    >>> dataclasses.replace(Recipe.paper(), epochs=100, milestones=(40, 60, 80, 90)).learning_rate
    0.001
    """

    optimizer: Literal["adam", "adamw", "sgd", "muon"] = "adamw"
    learning_rate: float = 3e-3
    backbone_share: float = 1.0
    schedule: Literal["one-cycle", "triangular", "steps", "cosine", "constant"] = "one-cycle"
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    weight_decay: float = 1e-2
    epochs: int = 30
    batch_size: int = 128
    shift: float = 0.0
    flip: bool = False
    label_smoothing: float = 0.0
    clip: float | None = None
    augment: str | None = None
    class_weight: ClassWeight = None
    sampling: Literal["uniform", "balanced"] = "uniform"
    ema: float | None = None

    @property
    def augmentations(self) -> frozenset[str]:
        """The names of the augmentations in use."""
        if self.augment is not None:
            return check_augmentation(self.augment)
        return frozenset(name for name in ("shift", "flip") if getattr(self, name))

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
    def speed(cls) -> Recipe:
        """Return the recipe for photos and convolutional networks with batch normalisation, like `fast_cnn`.

        Muon, large batches, label smoothing, shifts by up to a sixteenth (two pixels of 32), and flips.
        """
        return cls(
            optimizer="muon",
            learning_rate=5e-3,
            schedule="triangular",
            epochs=12,
            batch_size=512,
            shift=0.0625,
            flip=True,
            label_smoothing=0.1,
        )

    @classmethod
    def named(cls, recipe: str | Recipe, **changes: Any) -> Recipe:
        """Return a copy of a recipe, given by name or as an object, with changes; None values are ignored.

        >>> Recipe.named("fast", epochs=3).epochs
        3
        """
        if isinstance(recipe, str):
            if recipe not in _NAMES:
                raise RandomSetError(
                    "unknown recipe", got=recipe, expected=f"one of {', '.join(_NAMES)}, or a Recipe"
                )
            recipe = getattr(cls, recipe.replace("-", "_"))()
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
        for name in ("shift", "label_smoothing"):
            if not is_number(getattr(self, name)) or getattr(self, name) >= 1:
                raise RandomSetError(
                    f"{name} is out of range", got=getattr(self, name), expected=f"0 ≤ {name} < 1"
                )
        check_augmentation("none" if self.augment is None else self.augment)
        self.class_weight = checked_class_weight(self.class_weight)
        if self.ema is not None:
            if not is_number(self.ema) or self.ema >= 1:
                raise RandomSetError(
                    "ema is out of range", got=self.ema, expected="a decay, 0 ≤ ema < 1, or None"
                )
            self.ema = float(self.ema)
        if self.sampling == self.class_weight == "balanced":
            raise RandomSetError(
                "the classes would be balanced twice",
                got="balanced sampling and balanced weights",
                expected="one of them",
            )
        for name, choice, allowed in (
            ("sampling", str(self.sampling), ("uniform", "balanced")),
            ("optimizer", str(self.optimizer), _OPTIMIZERS),
            ("schedule", str(self.schedule), _SCHEDULES),
        ):
            if choice not in allowed:
                raise RandomSetError(f"unknown {name}", got=choice, expected=f"one of {', '.join(allowed)}")
        return self

    def differences(self, other: Recipe) -> list[str]:
        """List the changed fields that prevent resuming with this recipe.

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
    "muon": Muon,
}


# torch's OneCycleLR peaks a step earlier, cycles the momentum, too, and fails after the last step.
def _one_cycle(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    """Cosine warm-up from 1/25 over a quarter of the steps, then cosine decay to zero."""

    def share(step: int) -> float:
        rise = max(steps / 4, 1)
        if step < rise:
            return 0.04 + 0.96 * (1 - math.cos(math.pi * step / rise)) / 2
        return (1 + math.cos(math.pi * min((step - rise) / max(steps - rise, 1), 1))) / 2

    return lr_scheduler.LambdaLR(optimizer, share), "step"


def _triangular(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    """Up from 0.2 in 23 % of the steps, and down to 0.07, in straight lines."""

    def share(step: int) -> float:
        done = step / max(steps, 1)
        return 0.2 + 0.8 * done / 0.23 if done < 0.23 else 1 - 0.93 * min((done - 0.23) / 0.77, 1)

    return lr_scheduler.LambdaLR(optimizer, share), "step"


def _steps(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    return lr_scheduler.MultiStepLR(optimizer, list(recipe.milestones), recipe.factor), "epoch"


def _cosine(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    return lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1)), "step"


def _constant(recipe: Recipe, optimizer: Any, steps: int) -> tuple[Any, str]:
    return lr_scheduler.ConstantLR(optimizer, factor=1.0), "epoch"


_SCHEDULES: dict[str, Any] = {
    "one-cycle": _one_cycle,
    "triangular": _triangular,
    "steps": _steps,
    "cosine": _cosine,
    "constant": _constant,
}
