"""The whole pipeline in one call: `train` turns settings and tensors into a trained classifier."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from randomset._core.locks import locks_out_folder
from randomset.backbones.inputs import InputSpec
from randomset.belief.budget import Budget
from randomset.errors import RandomSetError
from randomset.models.base import Classifier
from randomset.models.registry import classifier_class
from randomset.training.config import TrainConfig
from randomset.training.job import Job
from randomset.training.preparation import backbone_for, log_pretrained_inputs, preprocess_for, spec_for
from randomset.training.report import FitReport

if TYPE_CHECKING:
    from randomset.budgeting.budgeter import Budgeter

__all__ = ["TrainResult", "train"]

logger = logging.getLogger("randomset.training")


@dataclass(frozen=True)
class TrainResult:
    """The trained model, and what was learned on the way."""

    model: Any
    """The classifier, of the class that the method names."""
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

    Stages are logged to "randomset.training". With a run folder, an interrupted call resumes from the stage
    and checkpoint it had reached.

    Args:
        config: the settings; its source, columns, size and shares are the caller's concern.
        inputs: images (n × C × H × W), features (n × F) or token ids (n × T); bytes are divided by 255.
        labels: class indices (n); for random-set networks also a mask of set-valued labels (n × N).
        classes: the names of the classes, in label order.
        val: inputs and labels for validation and calibration.
        rows: which inputs to train on; they are not copied, and may lie on disk.
        val_rows: which inputs to validate and calibrate on, instead of `val`.
        weights: sample weights.
        backbone: a backbone to use instead of the configured one; it is copied.
        budget: the sets of a random-set network, instead of choosing them.
        base: a trained softmax network with the same settings, which some methods build on.
        out: the run folder.
        resume: whether to resume what is in the run folder.
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
    torch.manual_seed(config.seed)
    template = backbone
    if template is None:
        template = backbone_for(config.backbone, inputs, config.width, config.weights)
        log_pretrained_inputs(template)
    if not cls.bounded:
        logger.info(f"Training {config.method} …")
    job = Job(
        config,
        classes,
        (inputs, labels) if weights is None else (inputs, labels, weights.float()),
        template,
        preprocess_for(template, inputs, rows),
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
