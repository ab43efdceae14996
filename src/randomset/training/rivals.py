"""Training the methods that RS-NN is compared with: the same engine, data, backbone and recipe for all."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from randomset.baselines import (
    FSVI,
    Baseline,
    Ensemble,
    Epinet,
    Evidential,
    LaplaceBridge,
    MCDropout,
    Softmax,
)
from randomset.errors import RandomSetError
from randomset.nn.preprocessing import Standardise
from randomset.training.fitting import fit
from randomset.training.loaders import EpochLoader, seed_from
from randomset.training.method import METHODS, MethodConfig, backbone_for

__all__ = ["train_rival"]

MEMBERS = 5


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
    **trainer_options: Any,
) -> Baseline:
    """Train the method that `config.method` names, of METHODS but "rsnn".

    The arguments are those of `train_method`. With a run folder, an interrupted training goes on from its
    last checkpoint, an ensemble from its last member.
    """
    if config.method not in METHODS or config.method == "rsnn":
        raise RandomSetError("unknown method", got=config.method, expected=f"one of {', '.join(METHODS[1:])}")
    if labels.dim() != 1:
        raise RandomSetError(
            "this method takes one class for each sample",
            got=f"set-valued labels for {config.method}",
            remedy="Random-set networks take set-valued labels: --method rsnn",
        )
    places = torch.arange(len(inputs)) if rows is None else rows
    train: Dataset[Any] = Subset(TensorDataset(inputs, labels), places.tolist())
    held = None
    if val_rows is not None and len(val_rows):
        held = Subset(TensorDataset(inputs, labels), val_rows.tolist())
    preprocess = Standardise.from_data(inputs, places)

    def fitted(model: Baseline, folder: Path | None, seed: int) -> Baseline:
        fit(
            model,
            train,
            held,
            loss=model.default_loss(),
            recipe=config.plan(len(places)),
            seed=seed,
            out=folder,
            resume=resume and folder is not None,
            progress=progress,
            **trainer_options,
        )
        return model.eval()

    def parts(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        return {
            "backbone": backbone_for(config.backbone, inputs, config.width),
            "preprocess": copy.deepcopy(preprocess),
        }

    def softmax(folder: Path | None, seed: int) -> Softmax:
        model = fitted(Softmax(num_classes=len(classes), **parts(seed)), folder, seed)
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
        model = softmax(out, config.seed)
        if config.method == "temperature":
            if held is None:
                raise RandomSetError("a temperature needs validation data", got="none")
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
    return fitted(kinds[config.method](num_classes=len(classes), **parts(config.seed)), out, config.seed)


@torch.no_grad()
def _logits(model: Softmax, inputs: Tensor, labels: Tensor, rows: Any) -> tuple[Tensor, Tensor]:
    found = []
    for part in rows.split(256):
        found.append(model(inputs[part].to(model.device)).cpu())
    return torch.cat(found), labels[rows]
