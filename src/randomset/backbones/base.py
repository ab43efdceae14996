"""Base classes of backbones, our own architectures, and checks of images for the networks of other libraries.

Each architecture returns features (B × F) and can be rebuilt from its `spec`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from randomset._core.batches import feature_tensor
from randomset.errors import RandomSetError, ShapeError

__all__ = [
    "Backbone",
    "LibraryBackbone",
    "LibraryClassifier",
    "LibraryRequest",
    "PretrainedInputs",
    "mlp",
    "resnet",
    "small_cnn",
    "wide_resnet",
    "width_of",
    "with_spec",
]


def width_of(backbone: nn.Module) -> int:
    """Return the number of features of a backbone, without running it."""
    for attribute in ("num_features", "out_features"):
        width = getattr(backbone, attribute, None)
        if isinstance(width, int):
            return width
    config = getattr(backbone, "config", None)
    if isinstance(width := getattr(config, "hidden_size", None), int):
        return width
    last: nn.Module | None = backbone
    while isinstance(last, nn.Sequential):
        # Activations and dropout keep the number of channels; flattening does not.
        elementwise = (nn.Dropout, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Identity, nn.Sigmoid, nn.LeakyReLU)
        last = next((layer for layer in reversed(last) if not isinstance(layer, elementwise)), None)
    for attribute in ("out_features", "num_features", "out_channels", "normalized_shape"):
        width = getattr(last, attribute, None)
        width = width[-1] if isinstance(width, tuple) else width
        if isinstance(width, int):
            return width
    raise RandomSetError(
        "cannot infer the number of features of the backbone",
        got=type(backbone).__name__,
        remedy="Pass in_features=…, the last number in backbone(batch).shape; "
        "for a whole classifier, use RandomSetNetwork.from_classifier",
    )


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


class LibraryClassifier(NamedTuple):
    """A trained classifier of another library, split before its last layer."""

    backbone: LibraryBackbone
    layer: nn.Linear
    """The layer that outputs the classes."""
    classes: tuple[str, ...]
    """The names of the classes in the order of the outputs; empty if the weights do not name them."""


@dataclass(frozen=True)
class LibraryRequest:
    """A network of another library to build: its name, its weights, and the images that it will take.

    `weights` are "default", "none" or a file; `config` is a Hugging Face configuration.
    """

    library: str
    model: str
    weights: str | os.PathLike[str]
    in_channels: int = 3
    image_size: int | None = None
    config: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of the backbone, `library:model`."""
        return f"{self.library}:{self.model}"

    @property
    def pretrained(self) -> bool:
        """Whether weights are loaded."""
        return self.weights != "none"

    def check_channels(self, pretrained: int) -> None:
        """Check that images have as many channels as the weights expect; a single channel is repeated."""
        if self.in_channels not in (1, pretrained):
            raise RandomSetError(
                f"the pretrained weights expect images with {pretrained} channels",
                got=f"{self.in_channels} channels for {self.name}",
                expected=f"{pretrained}, or 1, which is repeated",
                remedy="Convert the images, or train from scratch: --weights none",
            )

    def check_image_size(self, pretrained: Any) -> None:
        """Check that images have the only size that the weights support."""
        size = self.image_size
        if isinstance(pretrained, int) and size is not None and size != pretrained:
            raise RandomSetError(
                "the pretrained weights support a single image size",
                got=f"images of {size} × {size} for {self.name}",
                expected=f"{pretrained} × {pretrained}",
                remedy=f"Resize the images: --size {pretrained}",
            )

    def check_patch_size(self, patch: Any) -> None:
        """Check that images divide evenly into patches."""
        size, side = self.image_size, patch[0] if isinstance(patch, (tuple, list)) and patch else patch
        if isinstance(side, int) and side > 0 and size is not None and size % side:
            raise RandomSetError(
                "the image size is not divisible by the network's patch size",
                got=f"images of {size} × {size} for {self.name}",
                expected=f"a multiple of {side}",
                remedy=f"Resize the images: --size {max(side, round(size / side) * side)}",
            )

    def split_classifier(
        self, whole: Tensor, backbone: LibraryBackbone, layer: Any, inputs: Tensor
    ) -> nn.Linear:
        """Return the last layer if it turns features into the outputs of the `whole` classifier."""
        problem = f"which ends in {type(layer).__name__}"
        if isinstance(layer, nn.Linear):
            outputs = layer(backbone.eval()(inputs))
            if torch.allclose(outputs, whole, atol=1e-3 * float(whole.abs().max() + 1e-6)):
                return layer
            problem = f"whose outputs are not those of its last layer, {layer}"
        raise RandomSetError(
            "the features of this classifier are not accessible",
            got=f"{self.name}, {problem}",
            expected="one nn.Linear that outputs the classes",
        )


_MAX_DEPTH = 1000


class _KeepingInputs(nn.Module):
    """The outputs of some layers, followed by their inputs."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.layers(inputs), inputs.flatten(1)], -1)


def mlp(
    in_features: int, widths: Sequence[int] = (256, 256), dropout: float = 0.0, keep_inputs: bool = False
) -> Backbone:
    """Fully connected layers with ReLU, for tabular data: (B, …) of `in_features` values → (B, widths[-1]).

    With `keep_inputs`, the inputs are appended as further features. An input that is far from the training
    data is then far in its features, too, as the reliability requires, even where the layers hardly respond.

    >>> import torch
    >>> mlp(64)(torch.randn(5, 64)).shape, mlp(64, keep_inputs=True)(torch.randn(5, 64)).shape
    (torch.Size([5, 256]), torch.Size([5, 320]))
    """
    if not widths:
        raise RandomSetError("mlp needs at least one width", got=list(widths))
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in zip([in_features, *widths[:-1]], widths, strict=True):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    network: nn.Module = nn.Sequential(*layers)
    if keep_inputs:
        network = _KeepingInputs(network)
    return with_spec(mlp, network, widths[-1] + in_features * keep_inputs, locals())


def small_cnn(in_channels: int = 1, image_size: int = 28, width: int = 32, dropout: float = 0.0) -> Backbone:
    """Two convolutions with pooling and a linear layer, for small square images: seconds per epoch on a CPU.

    >>> import torch
    >>> small_cnn()(torch.randn(5, 1, 28, 28)).shape
    torch.Size([5, 128])
    """
    if image_size < 4:
        raise RandomSetError("image_size is too small", got=image_size, expected="at least 4 pixels")
    layers = nn.Sequential(
        nn.Conv2d(in_channels, width, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),  # after pooling: the same values from a quarter of the pixels
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * width * (image_size // 4) ** 2, 4 * width),
        nn.ReLU(),
    )
    return with_spec(small_cnn, layers, 4 * width, locals())


def resnet(depth: Literal[18, 50] = 18, in_channels: int = 3, width: int = 64) -> Backbone:
    """ResNet with a stem for small images (3×3, stride 1, no pooling): (B, C, H, W) → (B, F).

    F is 8 · width for depth 18 and 32 · width for depth 50.

    >>> import torch
    >>> resnet(18, width=4)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 32])
    """
    blocks = {18: (_BasicBlock, (2, 2, 2, 2)), 50: (_BottleneckBlock, (3, 4, 6, 3))}
    if depth not in blocks:
        raise RandomSetError("unsupported ResNet depth", got=depth, expected="18 or 50")
    block, repeats = blocks[depth]
    layers: list[nn.Module] = [*_conv_norm(in_channels, width, 3), nn.ReLU(inplace=True)]
    channels = width
    for stage, repeat in enumerate(repeats):
        for i in range(repeat):
            layers.append(block(channels, width << stage, stride=2 if stage and not i else 1))
            channels = (width << stage) * block.expansion
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return with_spec(resnet, nn.Sequential(*layers), channels, locals())


def wide_resnet(depth: int = 28, widen: int = 10, in_channels: int = 3, dropout: float = 0.0) -> Backbone:
    """Wide ResNet for 32×32 images (Zagoruyko and Komodakis 2016): (B, C, H, W) → (B, 64 · widen).

    >>> import torch
    >>> wide_resnet(10, 1)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """
    if not 10 <= depth <= _MAX_DEPTH or (depth - 4) % 6:
        expected = f"10, 16, 22, 28, … up to {_MAX_DEPTH}"
        raise RandomSetError("unsupported wide ResNet depth", got=depth, expected=expected)
    layers: list[nn.Module] = [_conv(in_channels, 16, 3)]
    channels = 16
    for stage in range(3):
        for i in range((depth - 4) // 6):
            stride, width = 2 if stage and not i else 1, 16 * widen << stage
            layers.append(_PreActivationBlock(channels, width, stride, dropout))
            channels = width
    layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return with_spec(wide_resnet, nn.Sequential(*layers), channels, locals())


def _kaiming(layer: nn.Conv2d) -> None:
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def with_spec(
    builder: Callable[..., Backbone],
    layers: nn.Module,
    num_features: int,
    options: dict[str, Any],
    initialise: Callable[[nn.Conv2d], None] = _kaiming,
) -> Backbone:
    """Initialise convolutions and record how to build the backbone; `options` are the builder's locals."""
    convolutions = [module for module in layers.modules() if isinstance(module, nn.Conv2d)]
    for layer in convolutions:
        initialise(layer)
    if all(layer.out_channels % 16 == 0 for layer in convolutions):
        # The fastest layout for convolutions. With 4 channels, torch 2.13 crashed in it on a CPU.
        layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    backbone = Backbone(layers, num_features)
    values = {name: options[name] for name in inspect.signature(builder).parameters}
    values = {name: list(value) if isinstance(value, Sequence) else value for name, value in values.items()}
    backbone.spec = {"name": builder.__name__, "options": values}
    return backbone


def _conv(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False)


def _conv_norm(in_channels: int, out_channels: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [_conv(in_channels, out_channels, size, stride), nn.BatchNorm2d(out_channels)]


class _BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.body = self._body(in_channels, width, stride)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                _conv(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels)
            )
        self.last = nn.ReLU(inplace=True)

    def _body(self, in_channels: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            *_conv_norm(in_channels, width, 3, stride), nn.ReLU(inplace=True), *_conv_norm(width, width, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x) + self.shortcut(x))


class _BottleneckBlock(_BasicBlock):
    """1×1, 3×3 and 1×1 convolutions with a shortcut."""

    expansion = 4

    def _body(self, in_channels: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            *_conv_norm(in_channels, width, 1),
            nn.ReLU(inplace=True),
            *_conv_norm(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_conv_norm(width, 4 * width, 1),
        )


class _PreActivationBlock(nn.Module):
    """Pre-activation block: normalisation and ReLU before each convolution."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(in_channels), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            _conv(in_channels, out_channels, 3, stride),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            _conv(out_channels, out_channels, 3),
        )
        self.shortcut = (
            _conv(in_channels, out_channels, 1, stride) if stride > 1 or in_channels != out_channels else None
        )

    def forward(self, x: Tensor) -> Tensor:
        active = self.first(x)
        return self.body(active) + (x if self.shortcut is None else self.shortcut(active))
