"""Backbones that ship. Each yields features (B × F), tells F, and can be built again by its name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from randomset.backbones.preprocessing import Standardise
from randomset.errors import RandomSetError

__all__ = ["Backbone", "build", "mlp", "names", "resnet", "scaled", "small_cnn", "wide_resnet"]


_DEEPEST = 1000


class Backbone(nn.Module):
    """Layers in a row that end in features; `spec` says how to build the same again."""

    spec: dict[str, Any]

    def __init__(self, layers: nn.Module, num_features: int) -> None:
        super().__init__()
        self.layers, self.num_features = layers, num_features

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (B × F)."""
        return self.layers(inputs)


def build(name: str, **options: Any) -> Backbone:
    """Build a backbone by its name: one of ours, or `timm:…`, `torchvision:…`, `hf:…`.

    >>> build("mlp", in_features=64, widths=(32,)).num_features
    32
    """
    from randomset.backbones.library import foreign  # which builds on this module

    if name not in _BUILDERS and ":" not in name:
        expected = f"one of {', '.join(_BUILDERS)}, timm:…, torchvision:…, hf:…"
        raise RandomSetError("unknown backbone", got=name, expected=expected)
    builder: Callable[..., Backbone] = _BUILDERS.get(name) or functools.partial(foreign, name)
    try:
        inspect.signature(builder).bind(**options)
    except TypeError as error:
        allowed = ", ".join(inspect.signature(builder).parameters)
        raise RandomSetError(
            f"the backbone {name} cannot be built so", got=str(error), expected=f"options among {allowed}"
        ) from None
    return builder(**options)


def mlp(in_features: int, widths: Sequence[int] = (256, 256), dropout: float = 0.0) -> Backbone:
    """Fully connected layers with ReLU, for tables: (B, …) of `in_features` numbers → (B, widths[-1]).

    >>> import torch
    >>> mlp(64)(torch.randn(5, 64)).shape
    torch.Size([5, 256])
    """
    if not widths:
        raise RandomSetError("an mlp needs at least one width", got=list(widths))
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip([in_features, *widths[:-1]], widths, strict=True):
        layers += [nn.Linear(before, after), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return _named("mlp", nn.Sequential(*layers), widths[-1], locals())


def small_cnn(in_channels: int = 1, image_size: int = 28, width: int = 32, dropout: float = 0.0) -> Backbone:
    """Two convolutions with pooling and a wide layer, for small square images: seconds per epoch on a CPU.

    >>> import torch
    >>> small_cnn()(torch.randn(5, 1, 28, 28)).shape
    torch.Size([5, 128])
    """
    if image_size < 4:
        raise RandomSetError("the images are too small", got=image_size, expected="at least 4 pixels a side")
    layers = nn.Sequential(
        nn.Conv2d(in_channels, width, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),  # after the pooling it gives the same, on a quarter of the pixels
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * width * (image_size // 4) ** 2, 4 * width),
        nn.ReLU(),
    )
    return _named("small_cnn", layers, 4 * width, locals())


def resnet(depth: Literal[18, 50] = 18, in_channels: int = 3, width: int = 64) -> Backbone:
    """ResNet with the stem for small images (3×3, stride 1, no pooling): (B, C, H, W) → (B, F).

    F is 8 · width for depth 18 and 32 · width for depth 50.

    >>> import torch
    >>> resnet(18, width=4)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 32])
    """
    blocks = {18: (_Basic, (2, 2, 2, 2)), 50: (_Bottleneck, (3, 4, 6, 3))}
    if depth not in blocks:
        raise RandomSetError("there is no ResNet of this depth here", got=depth, expected="18 or 50")
    block, repeats = blocks[depth]
    layers: list[nn.Module] = [_conv(in_channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    channels = width
    for stage, repeat in enumerate(repeats):
        for i in range(repeat):
            layers.append(block(channels, width << stage, stride=2 if stage and not i else 1))
            channels = (width << stage) * block.expansion
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return _named("resnet", nn.Sequential(*layers), channels, locals())


def wide_resnet(depth: int = 28, widen: int = 10, in_channels: int = 3, dropout: float = 0.0) -> Backbone:
    """Wide ResNet for 32×32 images (Zagoruyko and Komodakis 2016): (B, C, H, W) → (B, 64 · widen).

    >>> import torch
    >>> wide_resnet(10, 1)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """
    if not 10 <= depth <= _DEEPEST or (depth - 4) % 6:
        raise RandomSetError(
            "a wide ResNet of this depth does not exist",
            got=depth,
            expected=f"10, 16, 22, 28, … up to {_DEEPEST}",
        )
    layers: list[nn.Module] = [_conv(in_channels, 16, 3)]
    channels = 16
    for stage in range(3):
        for i in range((depth - 4) // 6):
            layers.append(_Wide(channels, 16 * widen << stage, 2 if stage and not i else 1, dropout))
            channels = 16 * widen << stage
    layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return _named("wide_resnet", nn.Sequential(*layers), channels, locals())


def scaled(backbone: Backbone | dict[str, Any], scale: Standardise | None = None) -> Backbone:
    """Standardise the features of a backbone that is not trained, so that a head learns from them quickly.

    Args:
        backbone: the one, or its `spec`.
        scale: mean and deviation of each feature; weights that are loaded later bring their own.

    >>> import torch
    >>> inner, features = mlp(4, widths=(3,)), torch.arange(12.0).reshape(4, 3)
    >>> scaled(inner, Standardise.from_data(features)).layers[1](features)[:, 0]
    tensor([-1.3416, -0.4472,  0.4472,  1.3416])
    """
    inner = build(backbone["name"], **backbone["options"]) if isinstance(backbone, dict) else backbone
    width = inner.num_features
    found = Backbone(nn.Sequential(inner, scale or Standardise(torch.zeros(width), torch.ones(width))), width)
    found.spec = {"name": "scaled", "options": {"backbone": inner.spec}}
    return found


def names(spec: Any) -> list[str]:
    """Return the name in a `spec`, and those of the backbones within it.

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
    "resnet": resnet,
    "wide_resnet": wide_resnet,
    "scaled": scaled,
}


def _named(name: str, layers: nn.Module, num_features: int, values: dict[str, Any]) -> Backbone:
    """Initialise the weights, and note how the backbone was built."""
    for module in layers.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    backbone = Backbone(layers, num_features)
    convolutions = [layer for layer in layers.modules() if isinstance(layer, nn.Conv2d)]
    if all(layer.out_channels % 16 == 0 for layer in convolutions):
        # The layout that convolutions are fastest in; ours take it, a stranger's view(…) may not. With four
        # channels torch 2.13 crashed in it on a CPU.
        layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    options = {option: values[option] for option in inspect.signature(_BUILDERS[name]).parameters}
    options = {key: list(value) if isinstance(value, Sequence) else value for key, value in options.items()}
    backbone.spec = {"name": name, "options": options}
    return backbone


def _conv(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)


class _Basic(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = width * self.expansion
        self.body = self._body(before, width, stride)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.shortcut = nn.Sequential(_conv(before, after, 1, stride), nn.BatchNorm2d(after))
        self.last = nn.ReLU(inplace=True)

    def _body(self, before: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            _conv(before, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, width, 3),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x) + self.shortcut(x))


class _Bottleneck(_Basic):
    """1×1, 3×3 and 1×1 convolutions beside a shortcut."""

    expansion = 4

    def _body(self, before: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            _conv(before, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, 4 * width, 1),
            nn.BatchNorm2d(4 * width),
        )


class _Wide(nn.Module):
    """A block with normalisation before each convolution."""

    def __init__(self, before: int, after: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            _conv(before, after, 3, stride),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            _conv(after, after, 3),
        )
        self.shortcut = _conv(before, after, 1, stride) if stride > 1 or before != after else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.first(x)
        return self.body(active) + (x if self.shortcut is None else self.shortcut(active))
