"""Networks in files: one safetensors file whose header says how to build the network again. Never pickle."""

from __future__ import annotations

import copy
import json
import platform
from contextlib import nullcontext
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from randomset import backbones
from randomset._core.files import check_version, save_tensors
from randomset.backbones import library
from randomset.backbones.preprocessing import Standardise
from randomset.backbones.surgery import replace_with_identity
from randomset.belief.budget import Budget
from randomset.errors import FileFormatError, RandomSetError, WriteError
from randomset.models.calibration import calibration_from_spec

if TYPE_CHECKING:
    from randomset.models.random_set import RandomSetNetwork

__all__ = ["WEIGHTS", "built_backbone", "load", "save"]

WEIGHTS = "model.safetensors"

_FORMAT, _VERSION = "randomset.network", 1


def save(network: RandomSetNetwork, folder: Path) -> Path:
    """Write a network into a folder; what is there already is replaced only once the new file is whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError("the folder cannot be made", folder, error) from None
    header = {"network": json.dumps(_description(network), ensure_ascii=False)}
    save_tensors(network.state_dict(), folder / WEIGHTS, header)
    network.budget.save(folder / "budget.json")
    return folder


def load(
    kind: type[RandomSetNetwork], folder: Path, backbone: nn.Module | None, preprocess: nn.Module | None
) -> RandomSetNetwork:
    """Build the network that a folder describes, and fill in its weights."""
    from safetensors import SafetensorError, safe_open

    path = folder / WEIGHTS if folder.is_dir() else folder
    if not path.is_file():
        raise FileFormatError(
            "there is no network here",
            got=str(folder),
            expected=f"a folder with {WEIGHTS}, written by RandomSetNetwork.save or randomset train",
        )
    try:
        with safe_open(str(path), framework="pt") as file:
            header = (file.metadata() or {}).get("network")
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileFormatError("the file is not whole, or no safetensors", got=f"{path}: {error}") from None
    description = _checked(header, path)
    if preprocess is None and description.get("preprocess") == "Standardise" and "preprocess.mean" in state:
        mean = state["preprocess.mean"]
        preprocess = Standardise(torch.zeros_like(mean), torch.ones_like(mean))
    network = _built(kind, description, backbone, preprocess, state)
    precision = next((t.dtype for name, t in state.items() if name.startswith("head.layers.")), torch.float32)
    if not precision.is_floating_point:
        raise FileFormatError("the weights are no numbers of floating point", got=f"{path}: {precision}")
    network.to(precision)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise FileFormatError(
            "the weights do not fit the network" + (" with this backbone" if backbone is not None else ""),
            got=f"{path}: {str(error).splitlines()[-1].strip()}",
            remedy="Give a backbone of the architecture that was saved" if backbone is not None else "",
        ) from None
    return network.eval()


def _description(network: RandomSetNetwork) -> dict[str, Any]:
    import randomset

    preprocess = network.preprocess
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "budget": json.loads(network.budget.to_json()),
        "backbone": network.backbone.spec if isinstance(network.backbone, backbones.Backbone) else None,
        "backbone_class": type(network.backbone).__name__,
        "replaced_layer": network.replaced_layer,
        "head": {
            "in_features": network.head.in_features,
            "hidden": list(network.head.hidden),
            "dropout": network.head.dropout,
        },
        "preprocess": None if preprocess is None else type(preprocess).__name__,
        "calibration": None if network.calibration is None else network.calibration.spec,
        "frozen": network.backbone_frozen,
        "notes": network.notes,
        "versions": {
            "randomset": randomset.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _checked(header: str | None, path: Path) -> dict[str, Any]:
    try:
        description = json.loads(header or "null")
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        raise FileFormatError(
            "the file holds no random-set network", got=str(path), expected="a file of RandomSetNetwork.save"
        )
    check_version(description.get("version"), _VERSION, "the network", path)
    return description


def _built(
    kind: type[RandomSetNetwork],
    description: dict[str, Any],
    backbone: nn.Module | None,
    preprocess: nn.Module | None,
    state: dict[str, Tensor],
) -> RandomSetNetwork:
    try:
        head, spec, layer = description["head"], description["backbone"], description["replaced_layer"]
        budget = Budget.from_json(json.dumps(description["budget"]))
        if description["preprocess"] is not None and preprocess is None:
            raise RandomSetError(
                "the network's preprocessing is not one of ours",
                got=str(description["preprocess"]),
                remedy="Build it and give it: RandomSetNetwork.load(folder, preprocess=…)",
            )
        if backbone is None:
            if spec is None:
                raise RandomSetError(
                    "the network's backbone is not one of ours",
                    got=description["backbone_class"],
                    remedy="Build it and give it: RandomSetNetwork.load(folder, backbone=…)",
                )
            backbone = built_backbone(spec, state)
        _check_room([head["in_features"], *head["hidden"], len(budget)], state)
        if layer is not None and isinstance(_part(backbone, layer), nn.Linear):
            backbone = copy.deepcopy(backbone)
            replace_with_identity(backbone, layer)
        network = kind(
            backbone,
            budget,
            in_features=head["in_features"],
            hidden=head["hidden"],
            dropout=head["dropout"],
            preprocess=preprocess,
            freeze_backbone=bool(description["frozen"]),
        )
        network.replaced_layer = layer
        network.calibration = calibration_from_spec(description["calibration"])
        network.notes = dict(description["notes"])
    except RandomSetError:
        raise
    except Exception as error:  # of torch and of libraries, whatever they meet in a description that is wrong
        raise FileFormatError("the description of the network is not whole", got=f"{error!r:.200}") from None
    return network


def built_backbone(spec: dict[str, Any], state: dict[str, Tensor]) -> backbones.Backbone:
    """Build the backbone that a file describes, unless it is larger than the weights in the same file.

    It is built without memory first, where its library can: a description may claim anything.
    """
    library.check_spec(spec)
    names = backbones.names(spec)
    with library.build_limits(state) if any(":" in name for name in names) else nullcontext():
        if not any(name.startswith(("timm:", "torchvision:")) for name in names):
            with torch.device("meta"):
                sketch = backbones.build(spec["name"], **spec["options"])
            _check_room([sum(p.numel() for p in sketch.parameters()), 1], state)
        return backbones.build(spec["name"], **spec["options"])


def _check_room(widths: list[int], state: dict[str, Tensor]) -> None:
    """Refuse layers of these widths where a file has fewer weights."""
    room = sum(tensor.numel() for tensor in state.values())
    if not all(type(width) is int for width in widths) or sum(map(mul, widths, widths[1:])) > room:
        raise FileFormatError(
            "the description of the network is not that of its weights", got=f"layers of {widths!r:.80}"
        )


def _part(module: nn.Module, name: str) -> nn.Module | None:
    return dict(module.named_modules()).get(name)
