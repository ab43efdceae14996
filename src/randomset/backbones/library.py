"""Backbones of other libraries by name: `timm:…`, `torchvision:…` and `hf:…`, with weights or without."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from randomset._core.batches import feature_tensor
from randomset._core.checks import is_whole
from randomset.backbones.architectures import Backbone
from randomset.errors import FileFormatError, RandomSetError, ShapeError

__all__ = [
    "ForeignBackbone",
    "Habits",
    "check_channels",
    "check_name",
    "check_patches",
    "check_side",
    "check_spec",
    "foreign",
    "from_file",
    "usual_size",
]


@dataclass(frozen=True)
class Habits:
    """What a network with trained weights expects of its images, and what to know of the weights."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    remark: str = ""


class ForeignBackbone(Backbone):
    """A network of another library without its classifier: (B, C, H, W) or tokens (B, T) → (B, F)."""

    def __init__(self, model: nn.Module, num_features: int, channels: int | None = None) -> None:
        super().__init__(model, num_features)
        self.channels = channels
        self.habits: Habits | None = None
        self.auxiliary_features: int | None = None
        """The width of a second output in training, as Inception's auxiliary classifier has one."""

    def forward(self, inputs: Tensor) -> Any:
        """Return features (B × F); in training with an auxiliary output, both."""
        if self.channels is not None and inputs.shape[1] != self.channels:
            if inputs.shape[1] != 1:
                raise ShapeError(
                    "the images have a number of channels that the network does not take",
                    got=str(tuple(inputs.shape)),
                    expected=f"(batch, {self.channels}, …), or one channel, which is repeated",
                )
            inputs = inputs.expand(-1, self.channels, -1, -1)
        output = self.layers(inputs)
        if self.auxiliary_features is not None and self.training:
            return output[0], output[1]
        return feature_tensor(output).flatten(1)


def foreign(
    name: str,
    *,
    in_channels: int = 3,
    image_size: int | None = None,
    config: dict[str, Any] | None = None,
    weights: str | os.PathLike[str] = "none",
) -> ForeignBackbone:
    """Build `library:model`, without its classifier.

    Args:
        name: such as "timm:vit_base_patch16_224", "torchvision:vgg16", or "hf:" with a name or a folder.
        in_channels: of the images.
        image_size: their side in pixels, which some networks must know beforehand.
        config: of Hugging Face, the configuration, if it is at hand; nothing is then looked up.
        weights: "default", those that the library knows for the model, from this machine if they are here;
            "none"; or a file.
    """
    from randomset.backbones import hugging_face, vision  # which build on this module

    library, model = _parts(name)
    builders: dict[str, Callable[..., ForeignBackbone]] = {
        "timm": vision.from_timm,
        "torchvision": vision.from_torchvision,
        "hf": hugging_face.from_hugging_face,
    }
    options: dict[str, Any] = {"in_channels": in_channels, "image_size": image_size}
    if library == "hf":
        options["config"] = config
    try:
        found = builders[library](model, weights=weights, **options)
    except (AssertionError, RuntimeError, TypeError, NotImplementedError) as error:  # a library's own words
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        size = "" if image_size is None else f" for images of {in_channels} × {image_size} × {image_size}"
        raise RandomSetError("the network cannot be built", got=f"{name}{size}: {said}") from None
    if library == "hf":
        options["config"] = hugging_face.plain_config(found.layers)
    if found.channels is not None:
        options["in_channels"] = found.channels  # those of the weights, where grey images are repeated
    found.spec = {"name": name, "options": options}
    return found


def check_spec(spec: Any) -> None:
    """Refuse a description of a network that is not as `foreign` writes it: a stranger may have written it.

    Such networks are built from the description alone: nothing is looked up, fetched or run.
    """
    from randomset.backbones import hugging_face

    name, options = str(spec["name"]), spec["options"]
    if ":" not in name:
        if name == "scaled":
            check_spec(options["backbone"])
        return
    library, _ = _parts(name)
    known = {"in_channels", "image_size", *(["config"] if library == "hf" else [])}
    wrong = [key for key in options if key not in known]
    size = options.get("image_size")
    if not is_whole(options.get("in_channels", 3), 1) or options.get("in_channels", 3) > _MOST_CHANNELS:
        wrong.append("in_channels")
    if size is not None and (not is_whole(size, 1) or size > _LARGEST_SIDE):
        wrong.append("image_size")
    if library == "hf" and not isinstance(options.get("config"), dict):
        wrong.append("config")
    if wrong:
        raise FileFormatError(
            "the description of a network is not as it was written",
            got=f"{name:.60} with {wrong[0]} {options.get(wrong[0])!r:.60}",
        )
    if library == "hf":
        hugging_face.check_config(options["config"])


@contextmanager
def from_file(weights: dict[str, Tensor]) -> Iterator[None]:
    """Build within this what a file describes: without the hub, and not much larger than its weights are.

    The room beside them is for classifiers that are cut off, and for tables that files do not keep.
    """
    from randomset.backbones import hugging_face

    seen: dict[int, Tensor] = {}
    room, taken = 2 * sum(tensor.numel() for tensor in weights.values()) + 2**24, 0

    def count(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        nonlocal taken
        if tensor is not None and id(tensor) not in seen:
            seen[id(tensor)] = tensor  # kept, or its number would be given to another
            taken += tensor.numel()
        if taken > room or len(seen) > 2 * len(weights) + 1000:
            raise FileFormatError(
                "the description of the network is not that of its weights",
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


_MOST_CHANNELS, _LARGEST_SIDE = 4096, 8192


def check_name(name: str) -> None:
    """Refuse the name of a network that its library does not know; nothing is built or fetched."""
    from randomset.backbones import vision

    library, model = _parts(name)
    if library == "hf":
        usual_size(name)  # it reads the configuration
    else:
        vision.check_known(library, model)


def usual_size(name: str) -> int | None:
    """Return the side of the images that a network's published weights know, if it takes images."""
    from randomset.backbones import hugging_face, vision

    library, model = _parts(name) if ":" in name else ("", "")
    if library == "hf":
        return hugging_face.usual_size(model)
    return vision.usual_size(library, model) if library else None


def check_patches(name: str, image_size: int | None, patch: Any) -> None:
    """Refuse images that cannot be cut into patches without a rest."""
    side = patch[0] if isinstance(patch, (tuple, list)) and patch else patch
    if isinstance(side, int) and side > 0 and image_size is not None and image_size % side:
        near = max(side, round(image_size / side) * side)
        raise RandomSetError(
            "the images cannot be cut into the network's patches",
            got=f"images of {image_size} × {image_size} for {name}",
            expected=f"a multiple of {side}",
            remedy=f"Bring them to another size: --size {near}",
        )


def check_side(name: str, image_size: int | None, known: Any) -> None:
    """Refuse images of another size than the only one that weights can take."""
    if isinstance(known, int) and image_size is not None and image_size != known:
        raise RandomSetError(
            "these weights know images of one size only",
            got=f"images of {image_size} × {image_size} for {name}",
            expected=f"{known} × {known}",
            remedy=f"Bring them to it: --size {known}",
        )


def check_channels(name: str, in_channels: int, known: int) -> None:
    """Refuse images with another number of channels than weights know; a single one is repeated."""
    if in_channels not in (1, known):
        raise RandomSetError(
            f"the weights are for images of {known} channels",
            got=f"{in_channels} channels for {name}",
            expected=f"{known}, or 1 that is repeated",
            remedy="Convert the images, or train from the beginning: --weights none",
        )


def _parts(name: str) -> tuple[str, str]:
    library, _, model = name.partition(":")
    plain = library == "hf" or re.fullmatch(r"[\w.-]+", model)  # theirs know addresses and folders
    if library not in ("timm", "torchvision", "hf") or not model or not plain:
        raise RandomSetError(
            "unknown backbone", got=name, expected="timm:MODEL or torchvision:MODEL or hf:MODEL"
        )
    return library, model
