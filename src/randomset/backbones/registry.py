"""Backbones by name, as the command line, saved models and `build` refer to them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from randomset.backbones.architectures import mlp, resnet, small_cnn, wide_resnet
from randomset.backbones.base import Backbone
from randomset.backbones.library import from_library
from randomset.backbones.preprocessing import Standardise
from randomset.errors import RandomSetError

__all__ = ["build", "names", "scaled"]


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
        scale: mean and standard deviation of each feature. Without it, features pass unchanged until weights
            are loaded, which include both.

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
    "resnet": resnet,
    "wide_resnet": wide_resnet,
    "scaled": scaled,
}
