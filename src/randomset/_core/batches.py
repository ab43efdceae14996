"""Batches from data loaders and outputs of backbones: split, convert, move to a device, show progress."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from randomset.errors import RandomSetError, ShapeError

__all__ = [
    "as_array",
    "as_floating",
    "call_with",
    "cut_into_batches",
    "evaluating",
    "feature_tensor",
    "flat_features",
    "inputs_alone",
    "labelled_batches",
    "moved",
    "on_terminal",
    "paired",
    "progress_bar",
    "split_batch",
    "usual_workers",
    "width_of",
]


def call_with(model: Callable[..., Any], inputs: Any) -> Any:
    """Call a model with its inputs, as keyword arguments if they are a mapping."""
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def split_batch(batch: Any) -> tuple[Any, Any]:
    """Split a batch into inputs and labels; labels are None if there are none."""
    if isinstance(batch, Mapping):
        inputs = dict(batch)
        labels = [inputs.pop(name) for name in ("labels", "label") if name in inputs]
        return inputs, labels[0] if labels else None
    if isinstance(batch, (tuple, list)):
        if len(batch) > 2:
            raise RandomSetError(
                "the batch has too many parts",
                got=f"{len(batch)} parts",
                expected="(inputs, labels), or a mapping of names to several inputs",
            )
        return batch[0], batch[1] if len(batch) > 1 else None
    return batch, None


def inputs_alone(batch: Any) -> Any:
    """Return the inputs of a batch without its labels and weights."""
    return split_batch(batch[:2] if isinstance(batch, (tuple, list)) and len(batch) == 3 else batch)[0]


def cut_into_batches(inputs: Any, size: int) -> tuple[Iterable[Any], int | None, Any]:
    """Split inputs into batches; return them, their number if known, and the device for the results."""
    if isinstance(inputs, Mapping):
        return [inputs], 1, "cpu"
    if isinstance(inputs, Tensor) or hasattr(inputs, "__array__"):
        try:
            tensor = inputs if isinstance(inputs, Tensor) else torch.as_tensor(inputs.__array__())
        except (TypeError, ValueError) as error:
            raise ShapeError("the inputs must be numbers", got=str(error)) from None
        if tensor.dim() == 0 or not len(tensor):
            raise ShapeError(
                "no inputs to predict", got=f"shape {tuple(tensor.shape)}", expected="(batch, …)"
            )
        batches = (tensor,) if len(tensor) <= size else tensor.split(size)
        return batches, len(batches), tensor.device
    if isinstance(inputs, Dataset):
        inputs = DataLoader(inputs, batch_size=size)
    if not isinstance(inputs, (Iterable, Iterator)):
        raise ShapeError(
            "unsupported type of inputs",
            got=type(inputs).__name__,
            expected="a tensor, an array, a data set, or an iterable of batches",
        )
    try:
        total = len(inputs) if isinstance(inputs, Sized) else None
    except TypeError:  # the loader of an iterable data set
        total = None
    return inputs, total, "cpu"


def moved(batch: Any, device: torch.device) -> Any:
    """Move every tensor of a batch to a device."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [moved(value, device) for value in batch]
    return batch


def as_array(inputs: Any) -> Any:
    """Convert data frames, lists of numbers and lists of pictures to arrays; refuse names and objects.

    >>> as_array([[1, 2], [3, 4]])
    array([[1, 2],
           [3, 4]])
    """
    first = inputs
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    named = isinstance(first, (str, bytes, Path))
    pictures = hasattr(first, "__array_interface__") and hasattr(first, "mode")  # of Pillow
    listed = isinstance(inputs, (list, tuple)) and (pictures or isinstance(first, (int, float, complex)))
    framed = hasattr(inputs, "__array__") and not isinstance(inputs, (Tensor, np.ndarray))
    if listed or framed:
        try:
            inputs = np.array(inputs)  # a copy: the array of a data frame may be read-only
        except ValueError as error:
            raise ShapeError("the inputs differ in shape", got=str(error).splitlines()[0]) from None
    unusual = isinstance(inputs, np.ndarray) and inputs.dtype.kind in "OUSc"
    if named or unusual:
        raise ShapeError(
            "expected numbers",
            got=type(first).__name__ if named else f"an array of {inputs.dtype}",
            expected="a tensor, an array, a data set or a loader",
            remedy="Files and texts are read by `randomset predict`, rs.Run(…).predict and load_source",
        )
    return inputs


def as_floating(inputs: Any, dtype: torch.dtype) -> Any:
    """Convert arrays to tensors, and floating-point values to `dtype`; bytes and tokens are kept."""
    if isinstance(inputs, Mapping):
        return {name: as_floating(value, dtype) for name, value in inputs.items()}
    if not isinstance(inputs, Tensor) and hasattr(inputs, "__array__"):
        inputs = torch.as_tensor(inputs.__array__())
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        return inputs.to(dtype)
    return inputs


def feature_tensor(output: Any) -> Tensor:
    """Return the tensor in a backbone's output: a tensor, a tuple, or a Hugging Face output."""
    for name in ("logits", "pooler_output", "last_hidden_state"):
        features = getattr(output, name, None)
        if isinstance(features, Tensor):
            return features
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise RandomSetError(
            "the backbone does not return features",
            got=type(output).__name__,
            expected="a tensor, a tuple that starts with one, or a Hugging Face output",
        )
    return output


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


def flat_features(features: Tensor, channels_first: bool) -> Tensor:
    """Average over all dimensions but batch and channels: (batch × F)."""
    if features.dim() < 3:  # not len(…), which an export would treat as a constant
        return features if features.dim() == 2 else features[:, None]
    return features.flatten(2).mean(2) if channels_first else features.flatten(1, -2).mean(1)


def usual_workers(data: Any = None) -> int:
    """Return the default number of loader workers: two where processes are forked, else none.

    With other start methods, a script without a `__main__` guard would run itself again in every worker. An
    iterable data set gets none, because every worker would yield all of it.
    """
    if isinstance(data, IterableDataset):
        return 0
    forks = multiprocessing.get_start_method(allow_none=True) in (None, "fork")
    safe = forks and sys.platform == "linux" and sys.version_info < (3, 14)
    return 2 if safe and not multiprocessing.current_process().daemon else 0


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and restore the mode of each of its modules afterwards."""
    training = _in_training_mode(model)
    for module in training:
        if module.training:  # not if it was part of a module before it
            module.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _in_training_mode(model: nn.Module) -> list[nn.Module]:
    """Return the modules in training mode, each before its parts; several times faster than `modules()`."""
    found, pending = [], [model]
    while pending:
        module = pending.pop()
        if module.training:
            found.append(module)
        pending += [part for part in module._modules.values() if part is not None]
    return found


def paired(data: Any) -> Any:
    """Turn a tuple of tensors or arrays, (inputs, labels) and perhaps weights, into a data set."""
    if (
        isinstance(data, tuple)
        and len(data) > 1
        and all(isinstance(part, Tensor) or hasattr(part, "__array__") for part in data)
    ):
        data = tuple(torch.as_tensor(part) for part in data)
        if len({len(part) for part in data}) > 1:
            raise ShapeError("inputs and labels have different lengths", got=[len(part) for part in data])
        return TensorDataset(*data)
    return data


def labelled_batches(data: Any, size: int, purpose: str = "labelled") -> Any:
    """Return batches of (inputs, labels) tensors or of a data set; batches are returned as they are."""
    data = paired(data)
    if type(data) is TensorDataset:
        return list(zip(*(tensor.split(size) for tensor in data.tensors), strict=True))
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size=size)
    if not hasattr(data, "__iter__") or isinstance(data, Tensor):
        raise RandomSetError(
            f"cannot read the {purpose} data",
            got=type(data).__name__,
            expected="a data set, a data loader or a Lightning data module",
            remedy="Pass two tensors as (inputs, labels), or as TensorDataset(inputs, labels)",
        )
    if isinstance(data, (list, tuple)) and not data:
        raise ShapeError(f"the {purpose} data are empty", got="no batch", expected="at least one")
    return data


# -- progress --------------------------------------------------------------------------------------


def on_terminal() -> bool:
    """Return whether the error stream is a terminal or a notebook."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


@contextmanager
def progress_bar(
    description: str, total: float | None, shown: bool | None = None
) -> Iterator[Callable[[float], object]]:
    """Show a progress bar on the error stream; yields a function that advances it.

    `shown=None` shows the bar on a terminal or in a notebook only. Without a total, the bar only indicates
    activity. A finished bar disappears.

    >>> with progress_bar("counting", 3, shown=False) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if shown is False:  # importing rich would slow down short calls
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import Progress, TimeRemainingColumn

    console, hidden = Console(stderr=True), shown is None and not on_terminal()
    columns = (*Progress.get_default_columns()[:-1], TimeRemainingColumn(elapsed_when_finished=True))
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.advance(task, amount)
