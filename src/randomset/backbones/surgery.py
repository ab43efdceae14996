"""A whole classifier that goes for a backbone: its last linear layer is taken out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError

__all__ = ["is_taken_from", "last_linear", "removed"]

_PROBABILITIES = (nn.Softmax, nn.LogSoftmax, nn.Sigmoid, nn.LogSigmoid)


def last_linear(model: nn.Module, layer: str | None = None, num_classes: int = 0) -> str:
    """Return the name of the linear layer that gives the classes.

    That is what timm's `get_classifier` returns; in a row of layers, the last; else the one linear layer
    whose output no other layer takes. Of several it is the one nearest to the model's surface (an auxiliary
    head lies deeper), and of these the one with as many outputs as there are classes.

    >>> last_linear(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    '2'
    """
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if layer is not None:
        if layer not in linears:
            raise RandomSetError(
                "the model has no such linear layer", got=layer, expected=f"one of {_listed(linears)}"
            )
        return layer
    if not linears:
        children = ", ".join(f"{name} ({type(module).__name__})" for name, module in model.named_children())
        raise RandomSetError(
            "the model has no linear layer to replace",
            got=f"{type(model).__name__} with {children or 'no parts'}",
            remedy="Give RandomSetNetwork a backbone that yields features, and in_features=…",
        )
    return _chosen(model, linears, num_classes, "")


def _chosen(model: nn.Module, linears: dict[str, nn.Linear], num_classes: int, prefix: str) -> str:
    """Return the whole name of the layer; `prefix` is what the names in this part begin with."""
    told = _told_by_model(model, linears)
    if told is not None:
        return prefix + told
    if isinstance(model, nn.Sequential):
        last = next(
            name
            for name in reversed(dict(model.named_children()))
            if any(key.split(".")[0] == name for key in linears)
        )
        if last in linears:
            return prefix + last
        inside = {
            key.removeprefix(f"{last}."): one for key, one in linears.items() if key.startswith(f"{last}.")
        }
        return _chosen(model.get_submodule(last), inside, num_classes, f"{prefix}{last}.")
    taken = [(name, _width_taken(module)) for name, module in model.named_modules()]
    several = {name: module for name, module in linears.items() if module.out_features > 1} or linears
    fitting = [
        name
        for name, module in several.items()
        if not any(width == module.out_features and other != name for other, width in taken)
    ]
    fitting = fitting or list(several)
    depth = min(name.count(".") for name in fitting)
    nearest = [name for name in fitting if name.count(".") == depth]
    matching = [name for name in nearest if linears[name].out_features == num_classes]
    nearest = matching if len(matching) == 1 else nearest
    if len(nearest) > 1:
        raise RandomSetError(
            "several layers could give the classes",
            got=_listed({prefix + name: linears[name] for name in nearest}),
            expected="one",
            remedy=f"Name it: from_classifier(model, budget, layer={prefix + nearest[0]!r})",
        )
    return prefix + nearest[0]


def removed(model: nn.Module, layer: str) -> int:
    """Put an identity in the place of a layer, and of a softmax behind it; return the layer's input width."""
    parent, _, name = layer.rpartition(".")
    holder = model.get_submodule(parent)
    width = model.get_submodule(layer).in_features
    setattr(holder, name, nn.Identity())
    if isinstance(holder, nn.Sequential):
        names = list(dict(holder.named_children()))
        for behind in names[names.index(name) + 1 :]:
            if isinstance(holder.get_submodule(behind), _PROBABILITIES):
                setattr(holder, behind, nn.Identity())
    return int(width)  # type: ignore[arg-type]


def is_taken_from(output: Tensor, given: Tensor) -> bool:
    """Say whether an output is what a layer gave, or of a sequence the token that stands for it."""
    if given.dim() == 3 and output.shape == (given.shape[0], given.shape[2]):
        return bool((given == output[:, None]).all(2).any(1).all())
    return given.shape == output.shape and torch.equal(given.nan_to_num(), output.nan_to_num())


def _told_by_model(model: nn.Module, linears: dict[str, nn.Linear]) -> str | None:
    getter = getattr(model, "get_classifier", None)
    told = getter() if callable(getter) else None
    if isinstance(told, nn.Identity):
        raise RandomSetError(
            "the model has no classifier, it yields features",
            got=type(model).__name__,
            remedy="Give it to RandomSetNetwork(model, budget) as it is",
        )
    return next((name for name, module in linears.items() if module is told), None)


def _width_taken(module: nn.Module) -> int | None:
    for attribute in (
        "in_features",
        "in_channels",
        "num_features",
        "normalized_shape",
        "input_size",
        "embed_dim",
    ):
        width = getattr(module, attribute, None)
        if isinstance(width, tuple):
            width = width[-1]
        if isinstance(width, int):
            return width
    return None


def _listed(linears: dict[str, nn.Linear]) -> str:
    named = [f"{name} ({one.in_features} → {one.out_features})" for name, one in linears.items()]
    return ", ".join(named if len(named) < 8 else [*named[:3], f"{len(named) - 6} more", *named[-3:]])
