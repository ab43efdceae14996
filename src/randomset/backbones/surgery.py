"""Turn a classifier into a backbone by removing its last linear layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError

__all__ = ["is_output_of_layer", "last_linear", "replace_with_identity"]

_PROBABILITIES = (nn.Softmax, nn.LogSoftmax, nn.Sigmoid, nn.LogSigmoid)
_INPUT_WIDTHS = ("in_features", "in_channels", "num_features", "normalized_shape", "input_size", "embed_dim")


def last_linear(model: nn.Module, layer: str | None = None, num_classes: int = 0) -> str:
    """Return the name of the linear layer that outputs the classes.

    This is the result of timm's `get_classifier`; in an `nn.Sequential`, the last linear layer; otherwise the
    only linear layer whose output no other layer takes as input. Ties go to the layer with the shortest path
    (auxiliary heads are nested deeper), then to the one with `num_classes` outputs.

    >>> last_linear(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    '2'
    """
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if layer is not None:
        if layer not in linears:
            raise RandomSetError(
                "the model has no such linear layer", got=layer, expected=f"one of {_format_layers(linears)}"
            )
        return layer
    if not linears:
        children = ", ".join(f"{name} ({type(module).__name__})" for name, module in model.named_children())
        raise RandomSetError(
            "the model has no linear layer to replace",
            got=f"{type(model).__name__} with {children or 'no submodules'}",
            remedy="End the model in nn.Linear, or give RandomSetNetwork a backbone that returns features",
        )
    return _choose(model, linears, num_classes, "")


def _choose(model: nn.Module, linears: dict[str, nn.Linear], num_classes: int, prefix: str) -> str:
    """Return the full name of the layer; `prefix` is the path of this submodule."""
    declared = _declared_classifier(model, linears)
    if declared is not None:
        return prefix + declared
    if isinstance(model, nn.Sequential):
        with_linears = {name.split(".")[0] for name in linears}
        last = next(name for name in reversed(dict(model.named_children())) if name in with_linears)
        if last in linears:
            return prefix + last
        nested = {
            name.removeprefix(f"{last}."): module
            for name, module in linears.items()
            if name.startswith(f"{last}.")
        }
        return _choose(model.get_submodule(last), nested, num_classes, f"{prefix}{last}.")
    input_widths = [(name, _input_width(module)) for name, module in model.named_modules()]
    candidates = {name: module for name, module in linears.items() if module.out_features > 1} or linears
    unused = [
        name
        for name, module in candidates.items()
        if not any(width == module.out_features and taker != name for taker, width in input_widths)
    ] or list(candidates)
    depth = min(name.count(".") for name in unused)
    nearest = [name for name in unused if name.count(".") == depth]
    matching = [name for name in nearest if linears[name].out_features == num_classes]
    nearest = matching if len(matching) == 1 else nearest
    if len(nearest) > 1:
        raise RandomSetError(
            "several layers could be the classifier",
            got=_format_layers({prefix + name: linears[name] for name in nearest}),
            expected="one",
            remedy=f"Choose one with layer={prefix + nearest[0]!r}",
        )
    return prefix + nearest[0]


def replace_with_identity(model: nn.Module, layer: str) -> int:
    """Replace a layer, and any softmax after it, with an identity; return the layer's input width."""
    parent, _, name = layer.rpartition(".")
    container = model.get_submodule(parent)
    width = model.get_submodule(layer).in_features
    setattr(container, name, nn.Identity())
    if isinstance(container, nn.Sequential):
        names = list(dict(container.named_children()))
        for later in names[names.index(name) + 1 :]:
            if isinstance(container.get_submodule(later), _PROBABILITIES):
                setattr(container, later, nn.Identity())
    return int(width)  # type: ignore[arg-type]


def is_output_of_layer(output: Tensor, layer_output: Tensor) -> bool:
    """Whether an output is what a layer returned or, for sequences, one token of it per sample."""
    if layer_output.dim() == 3 and output.shape == (layer_output.shape[0], layer_output.shape[2]):
        return bool((layer_output == output[:, None]).all(2).any(1).all())
    return layer_output.shape == output.shape and torch.equal(layer_output.nan_to_num(), output.nan_to_num())


def _declared_classifier(model: nn.Module, linears: dict[str, nn.Linear]) -> str | None:
    getter = getattr(model, "get_classifier", None)
    classifier = getter() if callable(getter) else None
    if isinstance(classifier, nn.Identity):
        raise RandomSetError(
            "the model has no classifier: it returns features",
            got=type(model).__name__,
            remedy="Pass it directly to RandomSetNetwork(model, budget)",
        )
    return next((name for name, module in linears.items() if module is classifier), None)


def _input_width(module: nn.Module) -> int | None:
    for attribute in _INPUT_WIDTHS:
        width = getattr(module, attribute, None)
        width = width[-1] if isinstance(width, tuple) else width
        if isinstance(width, int):
            return width
    return None


def _format_layers(linears: dict[str, nn.Linear]) -> str:
    layers = [f"{name} ({linear.in_features} → {linear.out_features})" for name, linear in linears.items()]
    return ", ".join(layers if len(layers) < 8 else [*layers[:3], f"{len(layers) - 6} more", *layers[-3:]])
