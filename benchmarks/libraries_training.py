"""Data with unknown inputs, a network and one training loop, shared by all methods of `benchmarks.libraries`.

The loop has one recipe, the fast one of `randomset train` (AdamW, one cycle of the learning rate, batches of
128, or 32 for small data sets), and stops after a number of epochs or seconds. Seconds are process time on
one thread, which other work on the machine does not affect; the learning rate follows the clock, so that the
cycle ends with the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from randomset.backbones.base import small_cnn
from randomset.backbones.inputs import Standardise
from randomset.data import Source, load_source
from randomset.training.config import TrainConfig
from randomset.training.recipe import Recipe

MEMBERS = 5

Loss = Callable[[Tensor, Tensor, float], Tensor]
"""Outputs, labels and the fraction of training completed → the loss."""


@dataclass(frozen=True)
class Plan:
    """The length of training: epochs, or seconds if given."""

    epochs: int = 30
    seconds: float | None = None

    def within(self, seconds: float) -> Plan:
        """Return the plan with another number of seconds, if it counts seconds."""
        return self if self.seconds is None else replace(self, seconds=max(seconds, 0.0))

    def halves(self) -> tuple[Plan, Plan]:
        """Return the plans of two phases; of an odd number of epochs, the second one has one more.

        >>> [plan.epochs for plan in Plan(epochs=3).halves()], Plan(seconds=8.0).halves()[0].seconds
        ([1, 2], 4.0)
        """
        seconds = None if self.seconds is None else self.seconds / 2
        first = self.epochs // 2
        return replace(self, epochs=first, seconds=seconds), replace(
            self, epochs=self.epochs - first, seconds=seconds
        )

    def share(self, step: int, steps: int, spent: float) -> float:
        """Return the fraction of training completed, given steps, steps per epoch and seconds spent.

        >>> Plan(epochs=2).share(5, 10, 100.0), Plan(seconds=8.0).share(5, 10, 2.0)
        (0.25, 0.25)
        """
        if self.seconds is None:
            return step / (steps * self.epochs)
        return spent / self.seconds if self.seconds else 1.0


def one_cycle(share: float) -> float:
    """Return the learning rate relative to its maximum: up for a quarter of training, then down to 0.

    >>> [round(one_cycle(share), 2) for share in (0.0, 0.25, 1.0)]
    [0.04, 1.0, 0.0]
    """
    if share < 0.25:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * share / 0.25)) / 2
    return (1 + math.cos(math.pi * (share - 0.25) / 0.75)) / 2


def train(
    model: nn.Module,
    loss: Loss,
    images: Tensor,
    labels: Tensor,
    plan: Plan,
    seed: int = 0,
    clock: Callable[[], float] = time.process_time,
    recipe: Recipe | None = None,
) -> float:
    """Train in place until the plan is completed; return the seconds spent."""
    recipe = TrainConfig().plan(len(images)) if recipe is None else recipe
    optimizer = recipe.optimizer_for([model])
    rates = [group["lr"] for group in optimizer.param_groups]
    order = torch.Generator().manual_seed(seed)
    steps, step, start = math.ceil(len(images) / recipe.batch_size), 0, clock()
    model.train()
    while True:
        for rows in torch.randperm(len(images), generator=order).split(recipe.batch_size):
            share = plan.share(step, steps, clock() - start)
            if share >= 1:
                model.eval()
                return clock() - start
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * one_cycle(share)
            optimizer.zero_grad()
            loss(model(images[rows]), labels[rows], share).backward()
            optimizer.step()
            step += 1


def cross_entropy(outputs: Tensor, labels: Tensor, share: float = 0.0) -> Tensor:
    """Return the cross-entropy; stacked outputs of several members share the labels."""
    return nn.functional.cross_entropy(outputs, labels.repeat(len(outputs) // len(labels)))


@dataclass(frozen=True)
class Task:
    """Standardised training, validation and test images with labels, and unknown images by name."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    unknown: dict[str, Tensor]
    classes: int

    @property
    def image_size(self) -> int:
        """Height and width in pixels."""
        return self.train[0].shape[-1]


def digits(seed: int) -> Task:
    """Return scikit-learn's digits 0 to 7; 8 and 9 are unknown."""
    data = load_source("digits")
    known = data.part((data.labels < 8).nonzero()[:, 0])
    rest, held, tested = known.split(0.1, 0.3, seed=seed)
    unknown = {"8 and 9": data.inputs[data.labels >= 8]}
    return _standardised(known, rest, held, known.part(tested), unknown, 8)


def mnist(seed: int, samples: int = 10_000, tested: int = 4_000) -> Task:
    """Return a subset of MNIST; test images of Fashion-MNIST and KMNIST are unknown."""
    data = load_source("mnist")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    test, fashion, kmnist = (
        load_source(name, "test").part(torch.arange(tested)) for name in ("mnist", "fashion-mnist", "kmnist")
    )
    unknown = {"fashion-mnist": fashion.inputs, "kmnist": kmnist.inputs}
    return _standardised(data, order[:samples], order[samples : samples + 2_000], test, unknown, 10)


TASKS: dict[str, Callable[[int], Task]] = {"digits": digits, "mnist": mnist}


def _standardised(
    data: Source, rest: Tensor, held: Tensor, test: Source, unknown: dict[str, Tensor], classes: int
) -> Task:
    scale = Standardise.from_data(data.inputs, rest)

    def seen(images: Tensor) -> Tensor:
        return scale(images.float() / 255 if images.dtype == torch.uint8 else images).float()

    return Task(
        (seen(data.inputs[rest]), data.labels[rest]),
        (seen(data.inputs[held]), data.labels[held]),
        (seen(test.inputs), test.labels),
        {name: seen(images) for name, images in unknown.items()},
        classes,
    )


@dataclass(eq=False)
class Experiment:
    """A task with a plan and a seed, and the softmax network that several methods build on."""

    task: Task
    plan: Plan
    seed: int

    def network(self, dropout: float = 0.0) -> nn.Sequential:
        """Build the backbone with a linear layer, initialised from the seed."""
        torch.manual_seed(self.seed)
        backbone = small_cnn(image_size=self.task.image_size, dropout=dropout)
        return nn.Sequential(backbone, nn.Linear(backbone.num_features, self.task.classes))

    def train(
        self,
        model: nn.Module,
        loss: Loss = cross_entropy,
        plan: Plan | None = None,
        recipe: Recipe | None = None,
    ) -> float:
        """Train in place; return the seconds."""
        return train(model, loss, *self.task.train, plan or self.plan, self.seed, recipe=recipe)

    @cached_property
    def softmax(self) -> tuple[nn.Sequential, float]:
        """The softmax network, and its training time."""
        network = self.network()
        return network, self.train(network)
