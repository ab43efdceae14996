"""Training the methods that RS-NN is compared with: the same engine, data, backbone and recipe for all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from randomset._core.locks import locks_out_folder
from randomset.errors import RandomSetError
from randomset.models import (
    FSVI,
    Baseline,
    Ensemble,
    Epinet,
    Evidential,
    LaplaceBridge,
    MCDropout,
    Softmax,
)
from randomset.training.fitting import fit
from randomset.training.loaders import EpochLoader, seed_from
from randomset.training.method import METHODS, MethodConfig
from randomset.training.preparation import (
    backbone_for,
    kept_features,
    preprocess_for,
    say_habits,
    scaled_features,
)

__all__ = ["train_rival"]

MEMBERS = 5


@locks_out_folder
def train_rival(
    config: MethodConfig,
    inputs: Tensor,
    labels: Tensor,
    classes: tuple[str, ...],
    *,
    rows: Tensor | None = None,
    val_rows: Tensor | None = None,
    out: Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    say: Callable[[str], object] = lambda text: None,
    base: Softmax | None = None,
    **trainer_options: Any,
) -> Baseline:
    """Train the method that `config.method` names, of METHODS but "rsnn".

    The arguments are those of `train_method`. With a run folder, an interrupted training goes on from its
    last checkpoint, an ensemble from its last member. `base` is the softmax network of the same settings, if
    it was trained before: a temperature and the Laplace bridge build on it.
    """
    if config.method not in METHODS or config.method == "rsnn":
        raise RandomSetError("unknown method", got=config.method, expected=f"one of {', '.join(METHODS[1:])}")
    if config.method == "temperature" and (val_rows is None or not len(val_rows)):
        raise RandomSetError("a temperature needs validation data", got="none")
    if labels.dim() != 1:
        raise RandomSetError(
            "this method takes one class for each sample",
            got=f"set-valued labels for {config.method}",
            remedy="Random-set networks take set-valued labels: --method rsnn",
        )
    places = torch.arange(len(inputs)) if rows is None else rows
    template = backbone_for(config.backbone, inputs, config.width, config.weights)
    say_habits(template, say)
    preprocess = preprocess_for(template, inputs, places)

    def parts(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        if config.freeze:
            return {"backbone": nn.Identity(), "in_features": template.num_features}
        backbone = backbone_for(config.backbone, inputs, config.width, config.weights)
        return {"backbone": backbone, "preprocess": copy.deepcopy(preprocess)}

    seen, frozen = inputs, template
    if config.freeze:
        kept = kept_features(template, preprocess, inputs, progress, say)
        frozen, scale = scaled_features(template, kept, places)
        seen = scale(kept)
    options = {"progress": progress, "resume": resume, **trainer_options}
    model = _trained(config, seen, labels, len(classes), places, val_rows, parts, out, say, options, base)
    if config.freeze:
        for part in model.modules():
            if isinstance(part, Baseline) and isinstance(part.backbone, nn.Identity):
                _mount(part, frozen, preprocess)
    return model


def _mount(model: Baseline, backbone: nn.Module, preprocess: nn.Module | None) -> None:
    """Put a frozen backbone under a model that was trained on its features."""
    if not isinstance(model, (Ensemble, LaplaceBridge)):  # their networks have their own
        model.backbone, model.preprocess = backbone, copy.deepcopy(preprocess)


def _trained(
    config: MethodConfig,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    places: Tensor,
    val_rows: Tensor | None,
    parts: Callable[[int], dict[str, Any]],
    out: Path | None,
    say: Callable[[str], object],
    options: dict[str, Any],
    base: Softmax | None,
) -> Baseline:
    """Train on tensors; `parts` gives a backbone and what comes before it for a seed."""
    train: Dataset[Any] = Subset(TensorDataset(inputs, labels), places.tolist())
    held = None
    if val_rows is not None and len(val_rows):
        held = Subset(TensorDataset(inputs, labels), val_rows.tolist())

    def fitted(model: Baseline, folder: Path | None, seed: int) -> Baseline:
        fit(
            model,
            train,
            held,
            loss=model.default_loss(),
            recipe=config.plan(len(places)),
            seed=seed,
            out=folder,
            **{**options, "resume": options["resume"] and folder is not None},
        )
        return model.eval()

    def softmax(folder: Path | None, seed: int) -> Softmax:
        model = fitted(Softmax(num_classes=num_classes, **parts(seed)), folder, seed)
        assert isinstance(model, Softmax)
        return model

    say(f"Training {config.method} …")
    if config.method == "ensemble":
        members = []
        for member in range(MEMBERS):
            say(f"Member {member + 1} of {MEMBERS} …")
            place = None if out is None else out / f"member-{member}"
            members.append(softmax(place, seed_from(config.seed, member) % 2**31))
        return Ensemble(members).eval()
    if config.method in ("softmax", "temperature", "laplace-bridge"):
        model = softmax(out, config.seed) if base is None else base
        if config.method == "temperature":
            model.calibrate(*_logits(model, inputs, labels, val_rows))
        if config.method != "laplace-bridge":
            return model
        bridge = LaplaceBridge(model)
        batches = EpochLoader(train, 256, shuffle=False)
        batches.shared = False
        bridge.fit_posterior(batches)
        return bridge.eval()
    kinds: dict[str, Callable[..., Baseline]] = {
        "fsvi": lambda **own: FSVI(num_train=len(places), **own),
        "epinet": Epinet,
        "mc-dropout": MCDropout,
        "evidential": Evidential,
    }
    return fitted(kinds[config.method](num_classes=num_classes, **parts(config.seed)), out, config.seed)


@torch.no_grad()
def _logits(model: Softmax, inputs: Tensor, labels: Tensor, rows: Any) -> tuple[Tensor, Tensor]:
    found = []
    for part in rows.split(256):
        found.append(model(inputs[part].to(model.device)).cpu())
    return torch.cat(found), labels[rows]
