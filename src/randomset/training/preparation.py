"""What a training starts from: the backbone that a name means, its weights, and features that are kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

from randomset import backbones
from randomset._core.files import save_tensors
from randomset.backbones.base import LibraryBackbone
from randomset.backbones.preprocessing import Standardise
from randomset.backbones.weights import load_weights_into, read_weights
from randomset.budgeting.features import extract_features
from randomset.errors import RandomSetError
from randomset.training.loaders import EpochLoader

__all__ = [
    "are_tokens",
    "backbone_for",
    "backbone_name",
    "features_of",
    "kept_features",
    "preprocess_for",
    "say_habits",
    "scaled_features",
]


def are_tokens(inputs: Tensor) -> bool:
    """Say whether inputs are numbers of tokens (n × T), not features."""
    return inputs.dim() == 2 and inputs.dtype == torch.long


def backbone_name(name: str, inputs: Tensor) -> str:
    """Say what "auto" means for inputs of this shape: an MLP, a small CNN, or a ResNet for larger images.

    >>> backbone_name("auto", torch.zeros(2, 3, 96, 128))
    'resnet18'
    """
    if name != "auto":
        return name
    if inputs.dim() == 2:
        return "mlp"
    height, width = inputs.shape[2:]
    return "small_cnn" if height == width and 4 <= height <= 64 else "resnet18"


def backbone_for(name: str, inputs: Tensor, width: int | None = None, weights: str = "none") -> nn.Module:
    """Build the backbone that a name means for inputs of this shape, with layers of a width if one is given.

    `weights` is "none", a file, or "default": those that are published for a network of another library.

    >>> backbone_for("auto", torch.zeros(2, 1, 28, 28)).spec["name"]
    'small_cnn'
    """
    name = backbone_name(name, inputs)
    if are_tokens(inputs) and not name.startswith("hf:"):
        raise RandomSetError(
            "texts need a network that reads them",
            got=name,
            remedy="Name one of Hugging Face's, or a folder with one: --backbone hf:MODEL",
        )
    if ":" in name:
        return _foreign(name, inputs, width, weights)
    if weights == "default":
        raise RandomSetError(
            "there are no published weights for a backbone of ours",
            got=name,
            remedy=f"Take another library's, such as timm:{name} or torchvision:{name}, or name a file",
        )
    backbone = _ours(name, inputs, width)
    if weights != "none":
        load_weights_into(backbone, read_weights(Path(weights)), None, weights)
    return backbone


def _foreign(name: str, inputs: Tensor, width: int | None, weights: str) -> nn.Module:
    if width is not None:
        raise RandomSetError("the width of another library's network is fixed", got=f"{name}, {width} wide")
    if inputs.dim() == 2 and not are_tokens(inputs):
        raise RandomSetError(
            "this backbone takes images or texts", got=f"{name} for features", expected="mlp"
        )
    options: dict[str, Any] = {"weights": weights}
    if inputs.dim() == 4:
        options |= {"in_channels": inputs.shape[1], "image_size": inputs.shape[2]}
    backbone = backbones.build(name, **options)
    if isinstance(backbone, LibraryBackbone) and (backbone.channels is None) != are_tokens(inputs):
        kind = "texts" if backbone.channels is None else "images"
        raise RandomSetError(f"this network takes {kind}", got=f"{name} for inputs of another kind")
    return backbone


def _ours(name: str, inputs: Tensor, width: int | None) -> nn.Module:
    if inputs.dim() == 2:
        if name != "mlp":
            raise RandomSetError("this backbone takes images", got=f"{name} for features", expected="mlp")
        return backbones.mlp(
            inputs.shape[1], dropout=0.2, **({} if width is None else {"widths": (width,) * 2})
        )
    channels, height, across = inputs.shape[1:]
    wide: dict[str, Any] = {} if width is None else {"width": width}
    builders: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: _ours("mlp", inputs.flatten(1)[:1], width),
        "small_cnn": lambda: backbones.small_cnn(channels, height, **wide),
        "resnet18": lambda: backbones.resnet(18, channels, **wide),
        "resnet50": lambda: backbones.resnet(50, channels, **wide),
        "wide_resnet": lambda: backbones.wide_resnet(widen=width or 10, in_channels=channels),
    }
    if name not in builders:
        expected = f"auto, {', '.join(builders)}, timm:…, torchvision:… or hf:…"
        raise RandomSetError("unknown backbone", got=name, expected=expected)
    if name == "small_cnn" and height != across:
        raise RandomSetError(
            "small_cnn takes square images", got=f"{height} × {across}", remedy="Take resnet18"
        )
    return builders[name]()


def preprocess_for(backbone: nn.Module, inputs: Tensor, rows: Tensor | None = None) -> Standardise | None:
    """Return what comes before the backbone: what its weights are used to, or what the data are like."""
    if are_tokens(inputs):
        return None
    pretrained = getattr(backbone, "pretrained_inputs", None)
    if pretrained is None:
        return Standardise.from_data(inputs, rows)
    mean, std = torch.tensor(pretrained.mean), torch.tensor(pretrained.std)
    if inputs.shape[1] != len(mean):  # grey images, repeated for a network of colours
        mean, std = mean.mean().expand(inputs.shape[1]), std.mean().expand(inputs.shape[1])
    return Standardise(mean, std)


def say_habits(backbone: nn.Module, say: Callable[[str], object]) -> None:
    """Say what a user should know of the weights that a backbone came with."""
    if remark := getattr(getattr(backbone, "pretrained_inputs", None), "remark", ""):
        say(f"The weights: {remark}.")


def features_of(
    model: nn.Module,
    inputs: Tensor,
    rows: Tensor | None = None,
    layer: str | None = None,
    progress: bool | None = None,
) -> Tensor:
    """Put inputs through a network, in batches that are read when their turn comes: (n × F)."""
    places = torch.arange(len(inputs)) if rows is None else rows
    batches = EpochLoader(Subset(TensorDataset(inputs), places.tolist()), 256, shuffle=False)
    batches.shared = False  # every process wants all features
    return torch.from_numpy(extract_features(model, batches, layer=layer, progress=progress)[0])


def kept_features(
    backbone: nn.Module,
    preprocess: nn.Module | None,
    inputs: Tensor,
    progress: bool | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> Tensor:
    """Return what a backbone that is not trained makes of inputs, from disk if that was computed before.

    The file's name is a checksum of the weights, the preprocessing and the data; it lies in the folder that
    RANDOMSET_CACHE names, or in the user's cache.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    model = nn.Sequential(nn.Identity() if preprocess is None else preprocess, backbone)
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "randomset"
    folder = Path(os.environ.get("RANDOMSET_CACHE") or usual) / "features"
    path = folder / f"{_checksum(model, inputs)}.safetensors"
    try:
        features = load_file(path)["features"]
        if features.dim() == 2 and len(features) == len(inputs) and features.isfinite().all():
            say(f"Features were computed before: {path}.")
            return features
    except (OSError, SafetensorError, KeyError):
        pass
    say("Computing features once …")
    features = features_of(model, inputs, layer="1", progress=progress)
    if not features.isfinite().all():
        raise RandomSetError(
            "the backbone makes no finite features of the data",
            got=f"row {int((~features.isfinite()).any(1).nonzero()[0])}",
            expected="finite inputs, in the range that the weights know",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_tensors({"features": features}, path)
    except OSError as error:  # the next run computes them again
        say(f"The features could not be kept in {folder}: {error}.")
    return features


def scaled_features(
    backbone: nn.Module, features: Tensor, rows: Tensor | None = None
) -> tuple[nn.Module, nn.Module]:
    """Return a backbone that is not trained, and what standardises its features as those of the rows are.

    A linear head learns from features of one scale in a few epochs; from those of an encoder, a tenth as
    large, a random-set head stays unsure after a hundred. A module of the user's own stays as it is.
    """
    if not isinstance(backbone, backbones.Backbone):
        return backbone, nn.Identity()
    scale = Standardise.from_data(features, rows)
    return backbones.scaled(backbone, scale).eval().requires_grad_(False), scale


def _checksum(model: nn.Module, inputs: Tensor) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(getattr(model[1], "spec", {}), sort_keys=True).encode())  # type: ignore[index]
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    digest.update(f"{tuple(inputs.shape)} {inputs.dtype}".encode())
    for part in inputs.split(4096):
        digest.update(part.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
