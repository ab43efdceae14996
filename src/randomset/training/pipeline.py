"""The whole pipeline: `train` turns settings and tensors into a trained classifier."""

from __future__ import annotations

import copy
import dataclasses
import logging
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from randomset._core.files import locks_out_folder
from randomset.backbones import Backbone, Whitening, build, mirrored, whiten
from randomset.backbones.base import width_of
from randomset.backbones.inputs import InputSpec
from randomset.belief.budget import Budget
from randomset.errors import RandomSetError, RandomSetWarning
from randomset.models.base import Classifier
from randomset.models.storage import classifier_class
from randomset.training.balance import (
    ClassWeight,
    balanced_weights,
    class_counts,
    class_weight_by_index,
    counted,
    warn_of_rare_classes,
    weights_by_class,
)
from randomset.training.config import TrainConfig
from randomset.training.fitting import fit
from randomset.training.loaders import EpochLoader, seed_from
from randomset.training.preparation import (
    are_tokens,
    backbone_for,
    features_of,
    frozen_features,
    log_pretrained_inputs,
    preprocess_for,
    scaled_features,
    spec_for,
)
from randomset.training.resuming import FitReport

if TYPE_CHECKING:
    from randomset.budgeting.budgeter import Budgeter

__all__ = ["Job", "TrainResult", "train"]

logger = logging.getLogger("randomset.training")


@dataclass
class Job:
    """The argument of `Classifier.train_on`; implements `randomset.models.training_job.TrainingJob`.

    Args:
        config: the settings.
        classes: the names of the classes, in label order.
        data: inputs and labels, and perhaps sample weights, of all samples.
        template: the backbone to copy.
        preprocess: a module applied to inputs before the backbone.
        redraw: whether to reinitialise the backbone's weights for every model, from the model's seed.
        rows: indices of the training samples in `data`; None for all.
        val: validation inputs and labels.
        val_rows: indices of the validation samples in `data`, instead of `val`.
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
    """The reports of all calls of `fit`, by folder."""

    # -- data -----------------------------------------------------------------------------------

    @cached_property
    def inputs(self) -> Tensor:
        """The inputs to train on, or the standardised features of a frozen backbone."""
        return self._frozen[0] if self.config.freeze else self.data[0]

    @cached_property
    def labels(self) -> Tensor:
        """The labels of the training samples."""
        return self.data[1] if self.rows is None else self.data[1][self.rows]

    @property
    def weights(self) -> Tensor | None:
        """The weights of the training samples, if any."""
        if len(self.data) < 3:
            return None
        return self.data[2] if self.rows is None else self.data[2][self.rows]

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
        """The training samples, not copied: they may be on disk."""
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
        """Return the training data in batches, in their original order."""
        loader = EpochLoader(self.training, 256, shuffle=False)
        loader.shared = False  # every process sees all of them
        return loader

    def features(self, model: nn.Module | None = None) -> Tensor:
        """Return features of the training samples: a model's, the pretrained backbone's, or the inputs."""
        if model is not None:
            if any(p.dtype != torch.float32 for p in model.parameters()):  # trained in another precision
                model = copy.deepcopy(model).float()
            return features_of(model, self.data[0], self.rows, progress=self.progress)
        features = self.data[0] if self.config.weights == "none" else self._pretrained
        return features if self.rows is None else features[self.rows]

    @cached_property
    def _pretrained(self) -> Tensor:
        return frozen_features(self.template, self.preprocess, self.data[0], self.progress)

    @cached_property
    def _frozen(self) -> tuple[Tensor, nn.Module, nn.Module]:
        """Standardised features of all samples, the backbone that returns them, and the standardisation."""
        backbone, scale = scaled_features(copy.deepcopy(self.template), self._pretrained, self.rows)
        return scale(self._pretrained), backbone, scale

    # -- models ---------------------------------------------------------------------------------

    @cached_property
    def width(self) -> int:
        """The number of features that the backbone returns."""
        return width_of(self.template)

    def parts(self) -> dict[str, Any]:
        """Seed torch, and return the backbone and preprocessing as arguments of a classifier."""
        torch.manual_seed(self.config.seed if self.seed is None else self.seed)
        if self.config.freeze:
            return {"backbone": nn.Identity(), "in_features": self.width}
        backbone = copy.deepcopy(self.template)
        if self.redraw and isinstance(backbone, Backbone):
            fresh = build(backbone.spec["name"], **backbone.spec["options"])
            for layer, fitted in zip(fresh.modules(), backbone.modules(), strict=True):
                if isinstance(layer, Whitening):
                    layer.load_state_dict(fitted.state_dict())
            backbone.load_state_dict(fresh.state_dict())
        return {"backbone": backbone, "preprocess": copy.deepcopy(self.preprocess)}

    def part(self, name: str, seed: int) -> Job:
        """Return the job of training a part of the model, with a seed and a folder of its own."""
        out = None if self.out is None else self.out / name
        own = seed_from(self.config.seed, seed) % 2**31
        return dataclasses.replace(self, out=out, seed=own, reports={})

    @cached_property
    def class_weight(self) -> ClassWeight:
        """The configured weights of the classes, without names, which a part of the model may not know."""
        return class_weight_by_index(self.config.class_weight, self.classes)

    @property
    def loss_weights(self) -> Tensor | None:
        """The weights of the training samples in the loss, if any: their own times those of their classes."""
        given = "balanced" if self.config.sampling == "balanced" else self.class_weight
        if given is None:
            return self.weights
        counts = class_counts(self.labels, len(self.classes))
        by_class = balanced_weights(counts) if isinstance(given, str) else torch.tensor(given)
        each = weights_by_class(self.labels, by_class)
        return each if self.weights is None else each * self.weights

    def fit(
        self,
        model: nn.Module,
        *,
        loss: nn.Module | None = None,
        recipe: Any = None,
        folder: str = "",
        reliability: str = "auto",
        earlier: str | None = None,
    ) -> FitReport:
        """Train a model on the training data by the configured recipe, in a folder within the run's.

        `earlier` is the folder of an earlier phase, whose epochs come first in the history.
        """
        out = None if self.out is None else self.out / folder
        recipe = self.config.plan(self.samples) if recipe is None else recipe
        options = dict(self.trainer_options)
        if "callbacks" in options:  # each phase has its own: early stopping, for example, has a memory
            options["callbacks"] = copy.deepcopy(options["callbacks"])
        with warnings.catch_warnings():  # `train` has already warned about rare classes
            warnings.filterwarnings("ignore", ".*training samples: ", RandomSetWarning)
            report = fit(
                model,
                self.training,
                self.validation,
                loss=loss,
                recipe=dataclasses.replace(recipe, class_weight=self.class_weight),
                seed=self.config.seed if self.seed is None else self.seed,
                out=out,
                resume=self.resume and out is not None,
                keep=self.config.keep,
                progress=self.progress,
                reliability=reliability,
                earlier=None if earlier is None else self.reports[earlier],
                **options,
            )
        self.reports[folder] = report
        return report

    def mount(self, model: Classifier) -> None:
        """Attach the frozen backbone to a model that was trained on its features, and to its members."""
        for part in model.modules():
            if isinstance(part, Classifier) and part.has_backbone and isinstance(part.backbone, nn.Identity):
                part.backbone, part.preprocess = self._frozen[1], copy.deepcopy(self.preprocess)
                part.freeze_backbone()

    def log(self, text: str) -> None:
        """Log a stage of the training."""
        logger.info(text)


def _subset(data: TensorDataset, rows: Tensor | None) -> Dataset[Any]:
    return data if rows is None else Subset(data, rows.tolist())


@dataclass(frozen=True)
class TrainResult:
    """The trained model and the by-products of training."""

    model: Any
    """The classifier, an instance of the configured method's class."""
    fit: FitReport | None
    first: FitReport | None
    """The training of the plain network that chose the sets, if there was one."""
    plain: nn.Module | None
    budgeter: Budgeter | None


@locks_out_folder
def train(
    config: TrainConfig,
    inputs: Tensor,
    labels: Tensor,
    classes: tuple[str, ...],
    val: tuple[Tensor, Tensor] | None = None,
    *,
    rows: Tensor | None = None,
    val_rows: Tensor | None = None,
    weights: Tensor | None = None,
    backbone: nn.Module | None = None,
    budget: Budget | None = None,
    base: Classifier | None = None,
    out: Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    **trainer_options: Any,
) -> TrainResult:
    """Train the classifier that `config.method` names on tensors.

    Stages are logged to "randomset.training". With a run folder and `resume`, an interrupted call continues
    from the stage and checkpoint that it reached.

    Args:
        config: the settings; source, columns, image size and held-out shares are not used here.
        inputs: images (n × C × H × W), features (n × F) or token ids (n × T); bytes are divided by 255.
        labels: class indices (n); for random-set networks also a mask of set-valued labels (n × N).
        classes: the names of the classes, in label order.
        val: inputs and labels for validation and calibration.
        rows: indices of the inputs to train on; they are not copied, and may be on disk.
        val_rows: indices of the inputs to validate and calibrate on, instead of `val`.
        weights: sample weights.
        backbone: a backbone to use instead of the configured one; it is copied.
        budget: the sets of a random-set network, instead of choosing them.
        base: a trained softmax network with the same settings, which some methods build on.
        out: the run folder.
        resume: whether to resume the run in the folder.
        progress: whether to show progress bars; None shows them on a terminal.
        trainer_options: as for `fit`.
    """
    cls = classifier_class(config.method)
    if labels.dim() != 1 and not cls.bounded:
        raise RandomSetError(
            "this method takes one class per sample",
            got=f"set-valued labels for {config.method}",
            remedy="Random-set networks take set-valued labels: --method rsnn",
        )
    class_weight_by_index(config.class_weight, classes)  # fail before the first stage
    counts = counted(labels if rows is None else labels[rows], len(classes))[1]
    if counts is not None:
        warn_of_rare_classes(counts, classes)
    torch.manual_seed(config.seed)
    template = backbone
    if template is None:
        template = backbone_for(config.backbone, inputs, config.width, config.weights)
        log_pretrained_inputs(template)
    preprocess = preprocess_for(template, inputs, rows)
    if backbone is None and config.weights == "none":
        whiten(template, inputs, preprocess, rows)
    if config.mirror:
        template = _mirrored(template, inputs)
    if not cls.bounded:
        logger.info(f"Training {config.method} …")
    job = Job(
        config,
        classes,
        (inputs, labels) if weights is None else (inputs, labels, weights.float()),
        template,
        preprocess,
        redraw=config.weights == "none",
        rows=rows,
        val=val,
        val_rows=val_rows,
        budget=budget,
        base=base,
        out=out,
        resume=resume,
        progress=progress,
        trainer_options=trainer_options,
    )
    model = cls.train_on(job)
    if config.freeze:
        job.mount(model)
    model.notes = spec_for(job.preprocess, InputSpec.of(inputs[:256], classes)).to_notes()
    artifacts, reports = job.artifacts, job.reports
    return TrainResult(
        model.eval(), reports.get(""), reports.get("first"), artifacts.get("plain"), artifacts.get("budgeter")
    )


def _mirrored(template: nn.Module, inputs: Tensor) -> nn.Module:
    """Return a backbone that averages the features of images and their mirror images in predictions."""
    if inputs.dim() != 4 or not isinstance(template, Backbone):
        raise RandomSetError(
            "mirror applies only to images",
            got=f"mirror for inputs of shape {tuple(inputs.shape)} and a {type(template).__name__}",
            expected="images, and a backbone of randomset.backbones",
        )
    return mirrored(template)
