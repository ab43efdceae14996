"""Batches of data and outputs of backbones: split, convert, move to a device, show progress."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from randomset._core.pixels import is_picture, pixels_from_pil
from randomset.errors import RandomSetError, ShapeError, first_line

__all__ = [
    "Rows",
    "as_array",
    "as_floating",
    "as_tensor",
    "call_with",
    "count_of",
    "cut_into_batches",
    "evaluating",
    "feature_tensor",
    "flat_features",
    "inputs_alone",
    "is_texts",
    "labelled_batches",
    "moved",
    "on_terminal",
    "paired",
    "progress_bar",
    "split_batch",
    "unweighted",
    "usual_workers",
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


def unweighted(batch: Any) -> tuple[Any, Any]:
    """Split a batch into inputs and labels, without its weights."""
    return split_batch(batch[:2] if isinstance(batch, (tuple, list)) and len(batch) == 3 else batch)


def inputs_alone(batch: Any) -> Any:
    """Return the inputs of a batch without its labels and weights."""
    return unweighted(batch)[0]


def cut_into_batches(
    data: Any, size: int, workers: int | None = 0, name: str = ""
) -> tuple[Iterable[Any], int | None, int | None]:
    """Split data into batches; return them, and the number of batches and of samples, if known.

    Data are a tensor, an array, a list of texts, (inputs, labels), a data set, or an iterable of batches.
    A mapping of names to inputs is a single batch, unless it comes with labels: (mapping, labels).
    """
    of, given = (f" for {name}", f" of {name}") if name else ("", "")
    if isinstance(data, Dataset) and not isinstance(data, TensorDataset):
        readers = usual_workers(data) if workers is None else workers
        data = DataLoader(data, batch_size=size, num_workers=readers, collate_fn=collated)
    if isinstance(data, DataLoader):
        try:
            plain = data.batch_size is not None
            return data, len(data), len(data.sampler) if plain else None  # type: ignore[arg-type]
        except TypeError:  # a stream
            return data, None, None
    if isinstance(data, TensorDataset):
        data = data.tensors if len(data.tensors) > 1 else data.tensors[0]
    pair = isinstance(data, tuple)
    first = data[0] if pair and data else data
    if isinstance(data, Mapping):
        data = [data]
    elif isinstance(first, (Tensor, Mapping)) or hasattr(first, "__array__") or is_texts(first):
        rows = Rows(tuple(_as_rows(part) for part in (data if pair else (data,))), size)
        counts = [count_of(part) for part in rows.parts]
        if pair and (len(set(counts)) != 1 or not counts[0]):
            raise ShapeError(
                f"inputs and labels{given} have different lengths, or are empty",
                got=" and ".join(map(str, counts)),
                expected="one label per input, at least one input",
            )
        if not counts[0]:
            got = f"shape {tuple(data.shape)}" if hasattr(data, "shape") else "0 inputs"
            raise ShapeError(f"no inputs to predict{of}", got=got, expected="(batch, …)")
        return rows, len(rows), counts[0]
    if not isinstance(data, Iterable):
        raise ShapeError(
            f"unsupported type of {'data' if name else 'inputs'}{of}",
            got=type(data).__name__,
            expected="a tensor, an array, (inputs, labels), a data set, or an iterable of batches",
        )
    return data, len(data) if isinstance(data, Sized) else None, None


def _as_rows(part: Any) -> Any:
    """Convert arrays to tensors, and raise for a single number, which has no rows."""
    if hasattr(part, "__array__"):
        part = as_tensor(part)
    if isinstance(part, Tensor) and part.dim() == 0:
        raise ShapeError("no inputs to predict", got="shape ()", expected="(batch, …)")
    return part


def as_tensor(values: Any) -> Tensor:
    """Convert an array or a data frame to a tensor; one that cannot be written is copied.

    >>> as_tensor(np.ones(2))
    tensor([1., 1.], dtype=torch.float64)
    """
    if isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(np.require(values, requirements="W"))  # torch warns of read-only arrays
    except (TypeError, ValueError) as error:
        raise ShapeError("the inputs must be numbers", got=str(error)) from None


@dataclass(frozen=True)
class Rows:
    """Batches of inputs, and labels if given, as slices."""

    parts: tuple[Any, ...]
    size: int

    def __len__(self) -> int:
        return -(-count_of(self.parts[0]) // self.size)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, count_of(self.parts[0]), self.size):
            rows = slice(start, start + self.size)
            cut = tuple(
                {key: value[rows] for key, value in part.items()} if isinstance(part, Mapping) else part[rows]
                for part in self.parts
            )
            yield cut if len(cut) > 1 else cut[0]


def count_of(inputs: Any) -> int:
    """Return the number of inputs; for a mapping, that of its first entry."""
    return len(next(iter(inputs.values()))) if isinstance(inputs, Mapping) else len(inputs)


def is_texts(data: Any) -> bool:
    """Return whether data are a list of strings."""
    return isinstance(data, list) and bool(data) and isinstance(data[0], str)


def collated(rows: list[Any]) -> Any:
    """Collate rows to a batch; Pillow images become pixels in [0, 1]."""

    def plain(value: Any) -> Any:
        return pixels_from_pil(value).float() / 255 if is_picture(value) else value

    try:
        return default_collate(
            [tuple(map(plain, row)) if isinstance(row, (tuple, list)) else plain(row) for row in rows]
        )
    except RuntimeError as error:
        raise ShapeError(
            "cannot collate inputs of different shapes",
            got=first_line(error),
            remedy="Resize them to the same shape in the data set",
        ) from None


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
    """Convert data frames, images, and lists of numbers or images to arrays; reject names and objects.

    >>> as_array([[1, 2], [3, 4]])
    array([[1, 2],
           [3, 4]])
    """
    if hasattr(inputs, "toarray") or getattr(inputs, "layout", torch.strided) is not torch.strided:
        raise ShapeError(
            "sparse inputs are not supported",
            got=type(inputs).__name__,
            expected="a dense tensor or array",
            remedy="Convert them: to_dense() or toarray()",
        )
    first = inputs
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    named = isinstance(first, (str, bytes, Path))
    listed = isinstance(inputs, (list, tuple)) and isinstance(first, (int, float, complex))
    framed = hasattr(inputs, "__array__") and not isinstance(inputs, (Tensor, np.ndarray))
    fixed = isinstance(inputs, np.ndarray) and not inputs.flags.writeable  # torch would warn
    pictures = ([inputs] if first is inputs else inputs) if is_picture(first) else []
    if other := [type(each).__name__ for each in pictures if not is_picture(each)]:
        raise ShapeError("expected images", got=other[0], remedy="Leave out labels, and lists of lists")
    if is_picture(first) or listed or framed or fixed:
        try:
            if is_picture(first):
                return torch.stack([pixels_from_pil(picture) for picture in pictures])
            inputs = np.array(inputs)  # a copy: the array of a data frame may be read-only
        except (ValueError, RuntimeError) as error:
            raise ShapeError("the inputs differ in shape", got=first_line(error)) from None
    unusual = isinstance(inputs, np.ndarray) and inputs.dtype.kind in "OUSc"
    if named or unusual or (isinstance(inputs, Tensor) and inputs.is_complex()):
        raise ShapeError(
            "expected numbers",
            got=type(first).__name__ if named else f"an array of {str(inputs.dtype).removeprefix('torch.')}",
            expected="a tensor, an array, a data set or a loader",
            remedy="Files and texts are read by `randomset predict`, rs.Run(…).predict and load_source",
        )
    return inputs


def as_floating(inputs: Any, dtype: torch.dtype) -> Any:
    """Convert arrays to tensors, and floating-point values to `dtype`; bytes and tokens are kept."""
    if isinstance(inputs, Mapping):
        return {name: as_floating(value, dtype) for name, value in inputs.items()}
    if hasattr(inputs, "__array__"):
        inputs = as_tensor(inputs)
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
        if module.training:  # unless its parent was first
            module.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _in_training_mode(model: nn.Module) -> list[nn.Module]:
    """Return the modules in training mode, each before its parts; several times faster than `modules()`."""
    found: list[nn.Module] = []
    pending: list[nn.Module | None] = [model]
    while pending:
        module = pending.pop()
        if module is None:
            continue
        if module.training:
            found.append(module)
        if module._modules:
            pending += module._modules.values()
    return found


def paired(data: Any) -> Any:
    """Turn a tuple of tensors or arrays, (inputs, labels) and perhaps weights, into a data set."""
    if (
        isinstance(data, tuple)
        and len(data) > 1
        and all(isinstance(part, Tensor) or hasattr(part, "__array__") for part in data)
    ):
        data = tuple(map(as_tensor, data))
        if len({len(part) for part in data}) > 1:
            raise ShapeError("inputs and labels have different lengths", got=[len(part) for part in data])
        return TensorDataset(*data)
    return data


def labelled_batches(data: Any, size: int, purpose: str = "labelled") -> Any:
    """Return batches of (inputs, labels) tensors or of a data set; batches are returned unchanged."""
    if not isinstance(data, (Dataset, Iterable)) or isinstance(data, (Tensor, str, bytes, Path)):
        raise RandomSetError(
            f"cannot read the {purpose} data",
            got=type(data).__name__,
            expected="a data set, a data loader or a Lightning data module",
            remedy="Pass two tensors as (inputs, labels), or as TensorDataset(inputs, labels)",
        )
    if isinstance(data, (list, tuple)) and not data:
        raise ShapeError(f"the {purpose} data are empty", got="no batch", expected="at least one")
    return cut_into_batches(paired(data), size)[0]


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

    With `shown=None`, the bar appears only on a terminal or in a notebook. Without a total, it only indicates
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
