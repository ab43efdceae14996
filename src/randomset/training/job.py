"""A training job: data, settings and a backbone, from which any classifier trains itself."""

from __future__ import annotations

import copy
import dataclasses
import logging
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from randomset._core.batches import width_of
from randomset.backbones import Backbone, build
from randomset.belief.budget import Budget
from randomset.models.base import Classifier
from randomset.training.config import TrainConfig
from randomset.training.fitting import fit
from randomset.training.loaders import EpochLoader, seed_from
from randomset.training.preparation import are_tokens, features_of, frozen_features, scaled_features
from randomset.training.report import FitReport

__all__ = ["Job"]

logger = logging.getLogger("randomset.training")


@dataclass
class Job:
    """What `Classifier.train_on` is given; see `randomset.models.training_job.TrainingJob`.

    Args:
        config: the settings.
        classes: the names of the classes, in label order.
        data: inputs and labels, and perhaps sample weights, of all samples.
        rows: the training samples among them; None for all.
        val: validation inputs and labels, or
        val_rows: the validation samples among `data`.
        template: the backbone to copy.
        preprocess: what is applied to inputs before the backbone.
        redraw: whether the backbone's weights are drawn again for every model, so that they depend on the
            seed alone.
    """

    config: TrainConfig
    classes: tuple[str, ...]
    data: tuple[Tensor, ...]
    template: nn.Module
    preprocess: nn.Module | None = None
    redraw: bool = True
    rows: Tensor | None = None
    val: tuple[Tensor, Tensor] | None = None
    val_rows: Tensor | None = None
    budget: Budget | None = None
    base: Classifier | None = None
    out: Path | None = None
    resume: bool = False
    progress: bool | None = None
    trainer_options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    artifacts: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, FitReport] = field(default_factory=dict)
    """What every training reported, by the folder it wrote to."""

    # -- data -----------------------------------------------------------------------------------

    @cached_property
    def inputs(self) -> Tensor:
        """What models learn from: the inputs, or the standardised features of a frozen backbone."""
        return self._frozen[0] if self.config.freeze else self.data[0]

    @cached_property
    def labels(self) -> Tensor:
        """The labels of the training samples."""
        return self.data[1] if self.rows is None else self.data[1][self.rows]

    @property
    def samples(self) -> int:
        """The number of training samples."""
        return len(self.labels)

    @property
    def is_table(self) -> bool:
        """Whether the inputs are features (n × F), from which sets can be chosen directly."""
        return self.data[0].dim() == 2 and not self.reads_tokens

    @property
    def reads_tokens(self) -> bool:
        """Whether the inputs are token ids."""
        return are_tokens(self.data[0])

    @cached_property
    def training(self) -> Dataset[Any]:
        """The training samples, without a copy: they may lie on disk."""
        return _subset(TensorDataset(self.inputs, *self.data[1:]), self.rows)

    @cached_property
    def validation(self) -> Dataset[Any] | None:
        """The validation samples, if any."""
        if self.val_rows is not None and len(self.val_rows):
            return _subset(TensorDataset(self.inputs, self.data[1]), self.val_rows)
        if self.val is None:
            return None
        inputs = self.val[0]
        if self.config.freeze:
            inputs = self._frozen[2](frozen_features(self.template, self.preprocess, inputs, self.progress))
        return TensorDataset(inputs, self.val[1])

    def batches(self) -> EpochLoader:
        """Return the training data in batches, in their own order."""
        loader = EpochLoader(self.training, 256, shuffle=False)
        loader.shared = False  # every process sees all of them
        return loader

    def features(self, model: nn.Module | None = None) -> Tensor:
        """Return features of the training samples: a model's, the pretrained backbone's, or the inputs."""
        if model is not None:
            return features_of(model, self.data[0], self.rows, progress=self.progress)
        found = self.data[0] if self.config.weights == "none" else self._pretrained
        return found if self.rows is None else found[self.rows]

    @cached_property
    def _pretrained(self) -> Tensor:
        return frozen_features(self.template, self.preprocess, self.data[0], self.progress)

    @cached_property
    def _frozen(self) -> tuple[Tensor, nn.Module, nn.Module]:
        """Standardised features of all samples, the backbone that yields them, and the standardisation."""
        backbone, scale = scaled_features(copy.deepcopy(self.template), self._pretrained, self.rows)
        return scale(self._pretrained), backbone, scale

    # -- models ---------------------------------------------------------------------------------

    @cached_property
    def width(self) -> int:
        """How many features the backbone yields."""
        return width_of(self.template)

    def parts(self, seed: int | None = None) -> dict[str, Any]:
        """Seed torch, and return the backbone and preprocessing as arguments of a classifier."""
        own = self.config.seed if self.seed is None else self.seed
        torch.manual_seed(own if seed is None else seed)
        if self.config.freeze:
            return {"backbone": nn.Identity(), "in_features": self.width}
        backbone = copy.deepcopy(self.template)
        if self.redraw and isinstance(backbone, Backbone):
            backbone.load_state_dict(build(backbone.spec["name"], **backbone.spec["options"]).state_dict())
        return {"backbone": backbone, "preprocess": copy.deepcopy(self.preprocess)}

    def part(self, name: str, seed: int) -> Job:
        """Return the job of training a part of the model, with a seed and a folder of its own."""
        out = None if self.out is None else self.out / name
        return dataclasses.replace(self, out=out, seed=seed_from(self.config.seed, seed) % 2**31)

    def fit(
        self, model: nn.Module, *, loss: nn.Module | None = None, recipe: Any = None, folder: str = ""
    ) -> FitReport:
        """Train a model on the training data by the configured recipe, in a folder within the run's."""
        out = None if self.out is None else self.out / folder
        report = fit(
            model,
            self.training,
            self.validation,
            loss=loss,
            recipe=self.config.plan(self.samples) if recipe is None else recipe,
            seed=self.config.seed if self.seed is None else self.seed,
            out=out,
            resume=self.resume and out is not None,
            progress=self.progress,
            **self.trainer_options,
        )
        self.reports[folder] = report
        return report

    def mount(self, model: Classifier) -> None:
        """Put the frozen backbone under a model that was trained on its features, and under its parts."""
        for part in model.modules():
            if isinstance(part, Classifier) and part.has_backbone and isinstance(part.backbone, nn.Identity):
                part.backbone, part.preprocess = self._frozen[1], copy.deepcopy(self.preprocess)
                part.freeze_backbone()

    def log(self, text: str) -> None:
        """Log a stage of the training."""
        logger.info(text)


def _subset(data: TensorDataset, rows: Tensor | None) -> Dataset[Any]:
    return data if rows is None else Subset(data, rows.tolist())
