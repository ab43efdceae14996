"""The whole method in one call: first network, features, budget, random-set network, calibration."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from randomset import backbones
from randomset._core.batches import feature_tensor, flat_features
from randomset._core.checks import is_whole
from randomset._core.files import write_document
from randomset._core.locks import locks_out_folder
from randomset.backbones.library import ForeignBackbone
from randomset.belief.budget import Budget
from randomset.budgeting.budgeter import Budgeter
from randomset.budgeting.checks import number_of_sets
from randomset.budgeting.reporting import clusters_of
from randomset.errors import RandomSetError, RandomSetWarning
from randomset.models.loss import RandomSetLoss
from randomset.models.random_set import RandomSetNetwork
from randomset.training.config import METHODS, MethodConfig
from randomset.training.fitting import fit
from randomset.training.preparation import (
    are_tokens,
    backbone_for,
    features_of,
    kept_features,
    preprocess_for,
    say_habits,
    scaled_features,
)
from randomset.training.report import FitReport

__all__ = ["METHODS", "MethodConfig", "MethodResult", "train_method"]


@dataclass(frozen=True)
class MethodResult:
    """The trained network, and what was seen on the way."""

    network: RandomSetNetwork
    fit: FitReport
    first: FitReport | None
    plain: nn.Module | None
    budgeter: Budgeter | None


@locks_out_folder
def train_method(
    config: MethodConfig,
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
    out: Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    say: Callable[[str], object] = lambda text: None,
    **trainer_options: Any,
) -> MethodResult:
    """Carry out the whole method on tensors.

    Images (n × C × H × W) go through a plain network of the same backbone first, whose features choose the
    budget, and from whose backbone the random-set network starts if the configuration says so; features
    (n × F) choose it themselves. Labels are class indices or a mask of set-valued labels.
    With a run folder, every stage can be gone on from.

    Args:
        config: how; its source, columns, size and shares are the caller's affair.
        inputs: what to learn from; bytes are divided by 255.
        labels: one for each input.
        classes: the names of the classes, in label order.
        val: inputs and labels to validate and calibrate on.
        rows: which of the inputs to learn from, so that none is copied: they may lie on disk.
        val_rows: which of the inputs to validate and calibrate on, instead of `val`.
        weights: how much each sample counts.
        backbone: one to use instead of the configured one; it is copied.
        budget: one to use instead of choosing it.
        out: the run folder.
        resume: whether to go on from what is in the run folder.
        progress: whether to show bars; None shows them on a terminal.
        say: what to call with a line of text when a stage begins.
        trainer_options: as for `fit`.
    """
    torch.manual_seed(config.seed)
    parts = [inputs, labels] if weights is None else [inputs, labels, weights.float()]
    train: Dataset[Any] = TensorDataset(*parts)
    held: Dataset[Any] | None = None if val is None else TensorDataset(*val)
    if val_rows is not None and len(val_rows):
        held = Subset(TensorDataset(inputs, labels), val_rows.tolist())
    if rows is not None:
        train = Subset(train, rows.tolist())
        labels = labels[rows]
    shared: dict[str, Any] = {"seed": config.seed, "progress": progress, **trainer_options}
    shared["resume"] = resume and out is not None
    template = backbone
    if template is None:
        template = backbone_for(config.backbone, inputs, config.width, config.weights)
        say_habits(template, say)
    preprocess = preprocess_for(template, inputs, rows)
    count = len(labels)
    stored = None if out is None else out / "budget.json"
    first, plain, budgeter = None, None, None
    if budget is None and resume and stored is not None and stored.exists():
        budget = Budget.load(stored)
        say(f"Going on with {budget}.")
    if budget is None and config.num_sets == number_of_sets(len(classes)) - 1:
        budget = every_set(classes)  # none has to be chosen
    kept = None
    if config.weights != "none" and (config.freeze or budget is None):
        kept = kept_features(template, preprocess, inputs, progress, say)
    raw = inputs.dim() == 2 and not are_tokens(inputs)  # features choose the sets themselves
    if config.from_first or (budget is None and kept is None and not raw):
        say("Training a plain network for its features …")
        plain = _plain(template, preprocess, len(classes))
        first = fit(
            plain,
            train,
            held,
            loss=ClassLoss(),
            recipe=config.plan(count, config.first_epochs, plain=True),
            out=None if out is None else out / "first",
            **shared,
        )
    if budget is None:
        features, codes = inputs if rows is None or not raw else inputs[rows], labels
        if plain is not None:
            features = features_of(plain, inputs, rows, progress=progress)
        elif kept is not None:
            features = kept if rows is None else kept[rows]
        if labels.dim() > 1:  # a sample that may be one of several classes belongs to each of them
            places, codes = labels.nonzero(as_tuple=True)
            features = features[places]
        budgeter, budget = _chosen(config, features, codes, classes, progress)
        say(f"Chose {budget}.")
    if stored is not None:
        stored.parent.mkdir(parents=True, exist_ok=True)
        if budgeter is not None and (clusters := clusters_of(budgeter)) is not None:
            write_document(clusters, stored.parent / "clusters.json", "randomset.clusters", 1)
        budget.save(stored)  # last: where it is, nothing is chosen again
    torch.manual_seed(config.seed)  # the same weights, whether the first network was trained or not
    own = copy.deepcopy(template)
    _start_anew(own, config.weights)
    if config.from_first and plain is not None:
        own.load_state_dict(_backbone(plain).state_dict())
    options: dict[str, Any] = {"hidden": config.hidden, "dropout": 0.1 if are_tokens(inputs) else 0.0}
    network = RandomSetNetwork(
        own, budget, preprocess=copy.deepcopy(preprocess), freeze_backbone=config.freeze, **options
    )
    loss = RandomSetLoss(budget, config.alpha, config.beta)
    start = " from the plain network's backbone" if config.from_first else ""
    say(f"Training the random-set network{start} …")
    plan = config.plan(count)
    if config.freeze and kept is not None:
        width = network.head.in_features
        head = RandomSetNetwork(nn.Identity(), budget, in_features=width, **options)
        network.backbone, scale = scaled_features(network.backbone, kept, rows)
        data = [scale(kept), *parts[1:]]
        train = TensorDataset(*data) if rows is None else Subset(TensorDataset(*data), rows.tolist())
        if val_rows is not None and len(val_rows):
            held = Subset(TensorDataset(*data[:2]), val_rows.tolist())
        elif val is not None:
            held = TensorDataset(scale(kept_features(template, preprocess, val[0], progress, say)), val[1])
        report = fit(head, train, held, loss=loss, recipe=plan, out=out, **shared)
        network.head, network.calibration = head.head, head.calibration
    else:
        report = fit(network, train, held, loss=loss, recipe=plan, out=out, **shared)
    return MethodResult(network.eval(), report, first, None if plain is None else plain.eval(), budgeter)


def every_set(classes: tuple[str, ...]) -> Budget:
    """Return every set of classes but Θ, which is in every prediction anyway."""
    sizes = range(2, len(classes))
    return Budget.from_sets(
        itertools.chain.from_iterable(itertools.combinations(classes, size) for size in sizes), classes
    )


class ClassLoss(nn.Module):
    """Cross-entropy of a plain network; a set-valued label is spread evenly over its classes."""

    def forward(self, outputs: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the mean over the batch."""
        target = labels / labels.sum(1, keepdim=True) if labels.dtype == torch.bool else labels
        each = nn.functional.cross_entropy(outputs, target, reduction="none")
        if weight is None:
            return each.mean()
        return (each * weight).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)


def _plain(template: nn.Module, preprocess: nn.Module | None, classes: int) -> nn.Sequential:
    network = RandomSetNetwork(copy.deepcopy(template), Budget.singletons(classes))
    backbone, width = network.backbone, network.head.in_features
    before = nn.Identity() if preprocess is None else copy.deepcopy(preprocess)
    inner = _Main(backbone) if isinstance(backbone, ForeignBackbone) else backbone
    return nn.Sequential(before, inner, nn.Linear(width, classes))


def _backbone(plain: nn.Sequential) -> nn.Module:
    inner = plain[1]
    return inner.backbone if isinstance(inner, _Main) else inner


class _Main(nn.Module):
    """A backbone without its auxiliary output."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, inputs: Tensor) -> Tensor:
        output = feature_tensor(self.backbone(inputs))
        return flat_features(output, channels_first=output.dim() > 3)


def _start_anew(backbone: nn.Module, weights: str) -> None:
    """Draw the weights of a backbone by name again, so that they follow from the seed alone."""
    if isinstance(backbone, backbones.Backbone) and weights == "none":
        fresh = backbones.build(backbone.spec["name"], **backbone.spec["options"])
        backbone.load_state_dict(fresh.state_dict())


def _chosen(
    config: MethodConfig, features: Tensor, codes: Tensor, classes: tuple[str, ...], progress: bool | None
) -> tuple[Budgeter | None, Budget]:
    """Choose the sets; of very few classes there are fewer than one might ask for by default."""
    num_sets = config.num_sets
    if num_sets != "auto":
        if not is_whole(num_sets, 0):
            raise RandomSetError(
                "num_sets is out of range", got=num_sets, expected='a whole number or "auto"'
            )
        num_sets = min(num_sets, number_of_sets(len(classes)) - 1)  # Θ is in every prediction anyway
    if num_sets == 0 or len(classes) == 2:
        return None, Budget.singletons(classes)
    features = features.double() if features.dtype != torch.float32 else features
    spread = features.std(0, correction=0)
    used = features[:, spread > 0] / spread[spread > 0]
    present = len(torch.unique(codes))
    if not used.shape[1] or present < 2:
        return None, Budget.singletons(classes)
    dimensions = min(3, used.shape[1], max(len(used) - 1, 1))
    budgeter = Budgeter(
        num_sets,
        reducer=None if used.shape[1] <= dimensions else config.reducer,
        dimensions=dimensions,
        classes=list(classes),
        seed=config.seed,
        progress=progress,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RandomSetWarning)  # its report repeats them
        budgeter.fit(used.numpy(), np.asarray(codes))
    return budgeter, budgeter.budget_
