"""Backbones by name: ours, and those of other libraries as `timm:…`, `torchvision:…` and `hf:…`."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from randomset._core.checks import is_whole
from randomset.backbones import hugging_face, vision
from randomset.backbones.base import (
    Backbone,
    LibraryBackbone,
    LibraryClassifier,
    LibraryRequest,
    mlp,
    resnet,
    small_cnn,
    wide_resnet,
)
from randomset.backbones.fast_cnn import fast_cnn
from randomset.backbones.inputs import Standardise
from randomset.errors import FileFormatError, RandomSetError, first_line

__all__ = [
    "build",
    "build_limits",
    "check_name",
    "check_spec",
    "classifier_from_library",
    "default_image_size",
    "from_library",
    "mirrored",
    "names",
    "scaled",
]

_MAX_CHANNELS, _MAX_IMAGE_SIZE = 4096, 8192


def build(name: str, **options: Any) -> Backbone:
    """Build a backbone by name: one of ours, or `timm:…`, `torchvision:…`, `hf:…`.

    >>> build("mlp", in_features=64, widths=(32,)).num_features
    32
    """
    if name not in _BUILDERS and ":" not in name:
        expected = f"one of {', '.join(_BUILDERS)}, timm:…, torchvision:…, hf:…"
        raise RandomSetError("unknown backbone", got=name, expected=expected)
    builder: Callable[..., Backbone] = _BUILDERS.get(name) or functools.partial(from_library, name)
    signature = inspect.signature(builder)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise RandomSetError(
            f"invalid options for backbone {name}",
            got=str(error),
            expected=f"options among {', '.join(signature.parameters)}",
        ) from None
    return builder(**options)


def scaled(backbone: Backbone | dict[str, Any], scale: Standardise | None = None) -> Backbone:
    """Standardise the features of a frozen backbone, so that a head learns from them quickly.

    Args:
        backbone: a backbone or its `spec`.
        scale: mean and standard deviation of each feature. Without it, features stay unchanged until weights
            that include both are loaded.

    >>> import torch
    >>> inner, features = mlp(4, widths=(3,)), torch.arange(12.0).reshape(4, 3)
    >>> scaled(inner, Standardise.from_data(features)).layers[1](features)[:, 0]
    tensor([-1.3416, -0.4472,  0.4472,  1.3416])
    """
    inner = build(backbone["name"], **backbone["options"]) if isinstance(backbone, dict) else backbone
    width = inner.num_features
    outer = Backbone(nn.Sequential(inner, scale or Standardise(torch.zeros(width), torch.ones(width))), width)
    outer.spec = {"name": "scaled", "options": {"backbone": inner.spec}}
    return outer


class _Mirrored(Backbone):
    """The mean of the features of an image and its mirror image; in training mode, of the image alone."""

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.layers(inputs)
        return features if self.training else (features + self.layers(inputs.flip(-1))) / 2


def mirrored(backbone: Backbone | dict[str, Any]) -> Backbone:
    """Average the features of each image and its mirror image in evaluation mode, in twice the time.

    Whatever is computed from the features uses the average: logits, beliefs, and the reliability.

    Args:
        backbone: a backbone for images, or its `spec`.

    >>> import torch
    >>> network, images = mirrored(small_cnn(1, 8, width=16)).eval(), torch.rand(2, 1, 8, 8)
    >>> torch.allclose(network(images), network(images.flip(-1)), atol=1e-6)
    True
    """
    inner = build(backbone["name"], **backbone["options"]) if isinstance(backbone, dict) else backbone
    outer = _Mirrored(inner, inner.num_features)
    outer.spec = {"name": "mirrored", "options": {"backbone": inner.spec}}
    return outer


def names(spec: Any) -> list[str]:
    """Return the name in a `spec`, followed by those of the backbones nested in it.

    >>> names(scaled(mlp(4)).spec)
    ['scaled', 'mlp']
    """
    if not isinstance(spec, dict):
        return []
    options = spec.get("options")
    return [str(spec.get("name")), *names(options.get("backbone") if isinstance(options, dict) else None)]


_BUILDERS: dict[str, Callable[..., Backbone]] = {
    "mlp": mlp,
    "small_cnn": small_cnn,
    "fast_cnn": fast_cnn,
    "resnet": resnet,
    "wide_resnet": wide_resnet,
    "scaled": scaled,
    "mirrored": mirrored,
}


def from_library(
    name: str,
    *,
    in_channels: int = 3,
    image_size: int | None = None,
    config: dict[str, Any] | None = None,
    weights: str | os.PathLike[str] = "none",
    classifier: bool = False,
) -> LibraryBackbone:
    """Build `library:model` without its classifier.

    Args:
        name: such as "timm:vit_base_patch16_224", "torchvision:vgg16", or "hf:" with a name or a folder.
        in_channels: number of image channels.
        image_size: height and width of the images, which some networks need in advance.
        config: Hugging Face configuration; if given, nothing is looked up.
        weights: "default", the library's published weights, from this machine if available; "none"; or a
            file.
        classifier: for Hugging Face, whether the features are those before the last layer of its classifier,
            rather than those of the encoder.
    """
    request = LibraryRequest(*_split_name(name), weights, in_channels, image_size, config)
    classifier = classifier and request.library == "hf"
    with _library_errors(request):
        if classifier:
            backbone = hugging_face.classifier_from_hugging_face(request).backbone
        elif request.library == "hf":
            backbone = hugging_face.from_hugging_face(request)
        else:
            build = vision.from_timm if request.library == "timm" else vision.from_torchvision
            backbone = build(request)
    return _with_spec(backbone, request, classifier)


def classifier_from_library(
    name: str, *, image_size: int | None = None, weights: str | os.PathLike[str] = "default"
) -> LibraryClassifier:
    """Build `library:model` with the classifier that its weights include, split before its last layer.

    Args:
        name: as for `from_library`; of Hugging Face, a model for the classification of texts or images.
        image_size: height and width of the images; by default, those that the published weights expect.
        weights: "default", the library's published weights, or a file.
    """
    request = LibraryRequest(*_split_name(name), weights, image_size=image_size)
    if str(weights) == "none":
        raise RandomSetError(
            "a classifier without weights is not trained", got=name, expected="default, or a file of weights"
        )
    builders = {
        "timm": vision.timm_classifier,
        "torchvision": vision.torchvision_classifier,
        "hf": hugging_face.classifier_from_hugging_face,
    }
    with _library_errors(request):
        found = builders[request.library](request)
    _with_spec(found.backbone, request, classifier=request.library == "hf")
    return found


@contextmanager
def _library_errors(request: LibraryRequest) -> Iterator[None]:
    """Turn the errors of a library that cannot build a network into ours."""
    try:
        yield
    except (AssertionError, RuntimeError, TypeError, NotImplementedError) as error:
        size = request.image_size
        images = "" if size is None else f" for images of {request.in_channels} × {size} × {size}"
        raise RandomSetError(
            "the network cannot be built", got=f"{request.name}{images}: {first_line(error)}"
        ) from None


def _with_spec(backbone: LibraryBackbone, request: LibraryRequest, classifier: bool) -> LibraryBackbone:
    """Record how a backbone was built."""
    # The weights may expect more channels than the images have: a single one is repeated.
    channels = request.in_channels if backbone.channels is None else backbone.channels
    options: dict[str, Any] = {"in_channels": channels, "image_size": request.image_size}
    if request.library == "hf":
        options["config"] = hugging_face.config_to_dict(backbone.layers)
    if classifier:
        options["classifier"] = True
    backbone.spec = {"name": request.name, "options": options}
    return backbone


def check_spec(spec: Any) -> None:
    """Raise if the `spec` in a file, which may be untrusted, is not one that `from_library` writes.

    A valid `spec` is sufficient to build its network: nothing is looked up, downloaded or run.
    """
    name, options = str(spec["name"]), spec["options"]
    if ":" not in name:
        if name in ("scaled", "mirrored"):
            check_spec(options["backbone"])
        return
    library, _ = _split_name(name)
    known = {"in_channels", "image_size", *(["config", "classifier"] if library == "hf" else [])}
    invalid = [key for key in options if key not in known]
    channels, size = options.get("in_channels", 3), options.get("image_size")
    if not is_whole(channels, 1) or channels > _MAX_CHANNELS:
        invalid.append("in_channels")
    if size is not None and (not is_whole(size, 1) or size > _MAX_IMAGE_SIZE):
        invalid.append("image_size")
    if library == "hf" and not isinstance(options.get("config"), dict):
        invalid.append("config")
    if not isinstance(options.get("classifier", False), bool):
        invalid.append("classifier")
    if invalid:
        raise FileFormatError(
            "invalid backbone specification",
            got=f"{name:.60} with {invalid[0]} {options.get(invalid[0])!r:.60}",
        )
    if library == "hf":
        hugging_face.check_config(options["config"])


@contextmanager
def build_limits(weights: dict[str, Tensor]) -> Iterator[None]:
    """Build what a file describes offline, and abort if it grows much larger than the file's weights.

    The margin is for classifiers that are removed, and for buffers that files do not store.
    """
    seen: dict[int, Tensor] = {}
    limit, total = 2 * sum(tensor.numel() for tensor in weights.values()) + 2**24, 0

    def count(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal total
        if tensor is not None and id(tensor) not in seen:
            seen[id(tensor)] = tensor  # kept alive, or its id could be reused
            total += tensor.numel()
        if total > limit or len(seen) > 2 * len(weights) + 1000:
            raise FileFormatError(
                "the network specification does not match its weights",
                got=f"more than the {len(weights)} tensors of the file",
            )

    hooks = [
        register_module_parameter_registration_hook(count),
        register_module_buffer_registration_hook(count),
    ]
    try:
        with hugging_face.offline() if find_spec("huggingface_hub") else nullcontext():
            yield
    finally:
        for hook in hooks:
            hook.remove()


def check_name(name: str) -> None:
    """Raise if a library does not have a network of this name; nothing is built or downloaded."""
    library, model = _split_name(name)
    if library == "hf":
        hugging_face.default_image_size(model)  # reads the configuration
    else:
        vision.check_model(library, model)


def default_image_size(name: str) -> int | None:
    """Return the image size of a network's published weights, or None if it does not take images."""
    if ":" not in name:
        return None
    library, model = _split_name(name)
    if library == "hf":
        return hugging_face.default_image_size(model)
    return vision.default_image_size(library, model)


def _split_name(name: str) -> tuple[str, str]:
    library, _, model = name.partition(":")
    # timm would also take URLs and folders
    valid = library == "hf" or re.fullmatch(r"[\w.-]+", model)
    if library not in ("timm", "torchvision", "hf") or not model or not valid:
        raise RandomSetError(
            "unknown backbone", got=name, expected="timm:MODEL or torchvision:MODEL or hf:MODEL"
        )
    return library, model
