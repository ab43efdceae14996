"""The interface of a training job, from which a classifier trains itself: data, settings and methods."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

if TYPE_CHECKING:
    from randomset.belief.budget import Budget
    from randomset.models.base import Classifier

__all__ = ["TrainingJob"]


class TrainingJob(Protocol):
    """The interface of `randomset.training.pipeline.Job`, which `Classifier.train_on` uses."""

    config: Any
    """The settings, a `TrainConfig`."""
    classes: tuple[str, ...]
    budget: Budget | None
    """The sets to use, if they were given."""
    base: Classifier | None
    """A trained softmax network with the same settings, if there is one."""
    out: Path | None
    seed: int | None
    """The seed of a part of the model, such as a member of an ensemble; None for the configured one."""
    resume: bool
    template: nn.Module
    """The backbone to copy."""
    preprocess: nn.Module | None
    progress: bool | None
    artifacts: dict[str, Any]
    """By-products of training worth keeping, by name."""

    @property
    def samples(self) -> int:
        """The number of training samples."""

    @property
    def labels(self) -> Tensor:
        """The labels of the training samples: class indices (n), or a mask of set-valued labels (n × N)."""

    @property
    def weights(self) -> Tensor | None:
        """The weights of the training samples, if any."""

    @property
    def loss_weights(self) -> Tensor | None:
        """The weights of the training samples in the loss, if any: their own times those of their classes."""

    @property
    def validation(self) -> Any:
        """The validation data, or None."""

    @property
    def width(self) -> int:
        """The number of features that the backbone returns."""

    @property
    def is_table(self) -> bool:
        """Whether the inputs are features (n × F), from which sets can be chosen directly."""

    @property
    def reads_tokens(self) -> bool:
        """Whether the inputs are token ids."""

    def parts(self) -> dict[str, Any]:
        """Seed torch, and return the backbone and preprocessing as arguments of a classifier."""

    def fit(
        self,
        model: nn.Module,
        *,
        loss: nn.Module | None = None,
        recipe: Any = None,
        folder: str = "",
        reliability: str = "auto",
        earlier: str | None = None,
    ) -> Any:
        """Train a model on the training data by the configured recipe, in a folder within the run's.

        `earlier` is the folder of an earlier phase, whose epochs come first in the history.
        """

    def part(self, name: str, seed: int) -> TrainingJob:
        """Return the job of training a part of the model in a folder of its own."""

    def features(self, model: nn.Module | None = None) -> Tensor:
        """Return features of the training samples: a model's, the pretrained backbone's, or the inputs."""

    def batches(self) -> Iterable[Any]:
        """Return the training data in batches, in their original order."""

    def log(self, text: str) -> None:
        """Log a stage of the training."""
