"""Base classes of backbones, and checks of the images that a library's network accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from randomset._core.batches import feature_tensor
from randomset.errors import RandomSetError, ShapeError

__all__ = [
    "Backbone",
    "LibraryBackbone",
    "PretrainedInputs",
    "check_channels",
    "check_image_size",
    "check_patch_size",
]


class Backbone(nn.Module):
    """A network that returns features; `spec` holds the name and options to build it again."""

    spec: dict[str, Any]

    def __init__(self, layers: nn.Module, num_features: int) -> None:
        super().__init__()
        self.layers, self.num_features = layers, num_features

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (B × F)."""
        return self.layers(inputs)


@dataclass(frozen=True)
class PretrainedInputs:
    """Image statistics and size that pretrained weights expect, and a remark on how they were loaded."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    remark: str = ""


class LibraryBackbone(Backbone):
    """Another library's network without its classifier: (B, C, H, W) or tokens (B, T) → (B, F)."""

    def __init__(
        self,
        model: nn.Module,
        num_features: int,
        channels: int | None = None,
        pretrained_inputs: PretrainedInputs | None = None,
    ) -> None:
        super().__init__(model, num_features)
        self.channels, self.pretrained_inputs = channels, pretrained_inputs
        self.auxiliary_features: int | None = None
        """Width of a second output in training mode, such as that of Inception's auxiliary classifier."""

    def forward(self, inputs: Tensor) -> Any:
        """Return features (B × F); in training mode with an auxiliary output, a pair of them."""
        if self.channels is not None and inputs.shape[1] != self.channels:
            if inputs.shape[1] != 1:
                raise ShapeError(
                    "unexpected number of image channels",
                    got=str(tuple(inputs.shape)),
                    expected=f"(batch, {self.channels}, …), or one channel, which is repeated",
                )
            inputs = inputs.expand(-1, self.channels, -1, -1)
        output = self.layers(inputs)
        if self.auxiliary_features is not None and self.training:
            return output[0], output[1]
        return feature_tensor(output).flatten(1)


def check_channels(name: str, in_channels: int, pretrained: int) -> None:
    """Check that images have as many channels as pretrained weights expect; a single channel is repeated."""
    if in_channels not in (1, pretrained):
        raise RandomSetError(
            f"the pretrained weights expect images with {pretrained} channels",
            got=f"{in_channels} channels for {name}",
            expected=f"{pretrained}, or 1, which is repeated",
            remedy="Convert the images, or train from scratch: --weights none",
        )


def check_image_size(name: str, image_size: int | None, pretrained: Any) -> None:
    """Check that images have the only size that pretrained weights support."""
    if isinstance(pretrained, int) and image_size is not None and image_size != pretrained:
        raise RandomSetError(
            "the pretrained weights support a single image size",
            got=f"images of {image_size} × {image_size} for {name}",
            expected=f"{pretrained} × {pretrained}",
            remedy=f"Resize the images: --size {pretrained}",
        )


def check_patch_size(name: str, image_size: int | None, patch: Any) -> None:
    """Check that images divide evenly into patches."""
    side = patch[0] if isinstance(patch, (tuple, list)) and patch else patch
    if isinstance(side, int) and side > 0 and image_size is not None and image_size % side:
        nearest = max(side, round(image_size / side) * side)
        raise RandomSetError(
            "the image size is not divisible by the network's patch size",
            got=f"images of {image_size} × {image_size} for {name}",
            expected=f"a multiple of {side}",
            remedy=f"Resize the images: --size {nearest}",
        )
