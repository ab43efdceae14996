"""Rivals in files: like networks, one safetensors file whose header says how to build the model again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from randomset import backbones
from randomset._core.files import check_version, expanded, save_tensors
from randomset.backbones.preprocessing import Standardise
from randomset.errors import FileFormatError, RandomSetError, WriteError
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
from randomset.models.random_set import RandomSetNetwork
from randomset.models.storage import WEIGHTS, built_backbone

__all__ = ["load_model", "save_rival"]

_FORMAT, _VERSION = "randomset.rival", 1
_KINDS = {kind.method: kind for kind in (Softmax, MCDropout, Evidential, Epinet, FSVI)}


def save_rival(model: Baseline, folder: str | Path) -> Path:
    """Write a model with its notes into a folder."""
    folder = expanded(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError("the folder cannot be made", folder, error) from None
    header = {"format": _FORMAT, "version": _VERSION, "model": _description(model), "notes": model.notes}
    save_tensors(model.state_dict(), folder / WEIGHTS, {"rival": json.dumps(header, ensure_ascii=False)})
    return folder


def load_model(folder: str | Path) -> RandomSetNetwork | Baseline:
    """Read what is in a run folder: a random-set network, or one of its rivals, with its `notes`."""
    from safetensors import SafetensorError, safe_open

    folder = expanded(folder)
    path = folder / WEIGHTS if folder.is_dir() else folder
    try:
        with safe_open(str(path), framework="pt") as file:
            header = (file.metadata() or {}).get("rival")
            state = {} if header is None else {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        header = None
    if header is None:
        return RandomSetNetwork.load(folder)  # which says what is wrong with the folder, if anything is
    try:
        content = json.loads(header)
        if content["format"] != _FORMAT:
            raise ValueError("another format")
        check_version(content["version"], _VERSION, "the model", path)
        _check_room(content["model"], state)
        model = _built(content["model"], state)
        model.load_state_dict(state)
        model.notes = dict(content["notes"])
    except RandomSetError:
        raise
    except Exception as error:  # of torch and of libraries, whatever they meet in a description that is wrong
        raise FileFormatError("the model cannot be built again", got=f"{path}: {error!r:.200}") from None
    return model.eval()


def _description(model: Baseline) -> dict[str, Any]:
    if isinstance(model, Ensemble):
        return {"method": model.method, "members": [_description(member) for member in model.members]}  # type: ignore[arg-type]
    if isinstance(model, LaplaceBridge):
        return {"method": model.method, "network": _description(model.network), "options": model.options}
    if not isinstance(model.backbone, backbones.Backbone):
        raise RandomSetError(
            "only backbones of ours can be saved with a rival", got=type(model.backbone).__name__
        )
    preprocess = model.preprocess
    if preprocess is not None and not isinstance(preprocess, Standardise):
        raise RandomSetError(
            "only Standardise can be saved with a rival, as preprocessing", got=type(preprocess).__name__
        )
    return {
        "method": model.method,
        "backbone": model.backbone.spec,
        "num_classes": model.num_classes,
        "channels": None if preprocess is None else len(preprocess.mean),
        "options": model.options,
    }


def _check_room(description: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Build the model without memory first: a description may claim more than the weights beside it are."""
    if _is_foreign(description):  # other libraries do not build so
        return
    with torch.device("meta"):
        sketch = _built(description, state).state_dict()
    wrong = [name for name in {**sketch, **state} if name not in sketch or name not in state]
    wrong += [name for name in sketch if name in state and sketch[name].shape != state[name].shape]
    if wrong:
        raise FileFormatError("the description of the model is not that of its weights", got=wrong[0])


def _is_foreign(description: dict[str, Any]) -> bool:
    inner = [*description.get("members", []), *([description["network"]] if "network" in description else [])]
    return (
        any(map(_is_foreign, inner))
        if inner
        else any(":" in name for name in backbones.names(description.get("backbone")))
    )


def _built(description: dict[str, Any], state: dict[str, Tensor]) -> Baseline:
    method = description["method"]
    if method == Ensemble.method:
        return Ensemble([_built(member, state) for member in description["members"]])
    if method == LaplaceBridge.method:
        network = _built(description["network"], state)
        if not isinstance(network, Softmax):
            raise ValueError("a Laplace bridge stands on a softmax network")
        return LaplaceBridge(network, **description["options"])
    spec, channels = description["backbone"], description["channels"]
    preprocess: nn.Module | None = None
    if channels is not None:
        preprocess = Standardise(torch.zeros(channels), torch.ones(channels))
    return _KINDS[method](
        backbone=built_backbone(spec, state),
        num_classes=description["num_classes"],
        preprocess=preprocess,
        **description["options"],
    )
