"""What goes for a backbone: how wide it is, and a whole classifier whose last linear layer is taken out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError

__all__ = ["feature_tensor", "is_taken_from", "last_linear", "removed", "width_of"]

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
    told = _told_by_model(model, linears)
    if told is not None:
        return told
    if isinstance(model, nn.Sequential):
        inside = [
            name for name in dict(model.named_children()) if any(key.split(".")[0] == name for key in linears)
        ]
        last = inside[-1]
        return last if last in linears else f"{last}.{last_linear(model.get_submodule(last))}"
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
            got=_listed({name: linears[name] for name in nearest}),
            expected="one",
            remedy=f"Name it: from_classifier(model, budget, layer={nearest[0]!r})",
        )
    return nearest[0]


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


def feature_tensor(output: Any) -> Tensor:
    """Take the tensor out of what a backbone returns: a tensor, a tuple, or Hugging Face's output."""
    for name in ("logits", "pooler_output", "last_hidden_state"):
        found = getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise RandomSetError(
            "the backbone yields no features",
            got=type(output).__name__,
            expected="a tensor, a tuple that starts with one, or a Hugging Face output",
        )
    return output


def is_taken_from(output: Tensor, given: Tensor) -> bool:
    """Say whether an output is what a layer gave, or of a sequence the token that stands for it."""
    if given.dim() == 3 and output.shape == (given.shape[0], given.shape[2]):
        return bool((given == output[:, None]).all(2).any(1).all())
    return given.shape == output.shape and torch.equal(given.nan_to_num(), output.nan_to_num())


def width_of(backbone: nn.Module) -> int:
    """Find out how many features a backbone yields, without running it."""
    for attribute in ("num_features", "out_features"):
        width = getattr(backbone, attribute, None)
        if isinstance(width, int):
            return width
    config = getattr(backbone, "config", None)
    if isinstance(width := getattr(config, "hidden_size", None), int):
        return width
    last: nn.Module | None = backbone
    while isinstance(last, nn.Sequential):
        # Activations, dropout and pooling keep the number of channels; flattening maps does not.
        keeping = (nn.Dropout, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Identity, nn.Sigmoid, nn.LeakyReLU)
        last = next((part for part in reversed(last) if not isinstance(part, keeping)), None)
    for attribute in ("out_features", "num_features", "out_channels", "normalized_shape"):
        width = getattr(last, attribute, None)
        width = width[-1] if isinstance(width, tuple) else width
        if isinstance(width, int):
            return width
    raise RandomSetError(
        "it is not clear how many features the backbone yields",
        got=type(backbone).__name__,
        remedy="Give in_features=…, the last number in backbone(batch).shape; "
        "a whole classifier goes to RandomSetNetwork.from_classifier",
    )


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
