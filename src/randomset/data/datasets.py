"""Data set objects of torch and Hugging Face: their inputs, labels and class names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from randomset._core.batches import progress_bar, usual_workers
from randomset._core.pixels import is_picture, pixels_from_pil
from randomset.data.tables import LABELS, TEXTS, named_column
from randomset.errors import RandomSetError, ShapeError

__all__ = ["HuggingFaceDataset", "class_names", "is_huggingface", "read_dataset"]


def is_huggingface(data: Any) -> bool:
    """Return whether this is a Hugging Face data set, without importing `datasets`."""
    return type(data).__module__.split(".")[0] == "datasets"


class HuggingFaceDataset(Dataset[Any]):
    """A Hugging Face data set as (input, label) pairs: images as uint8 (C × H × W), or texts.

    The input and label columns are detected by type and name unless given. Without a label column, an item
    is the input alone.
    """

    def __init__(self, table: Any, label: str | None = None, text: str | None = None) -> None:
        if hasattr(table, "keys"):
            got = ", ".join(table.keys())
            raise RandomSetError("expected a single split", got=got, remedy="Choose one: data['test']")
        if not hasattr(table, "__len__"):
            raise RandomSetError(
                "streaming data sets have no length",
                remedy="Pass batches instead: a DataLoader of table.with_format('torch')",
            )
        self.table, types = table, {name: type(kind).__name__ for name, kind in table.features.items()}
        columns, where = list(types), "the data set"
        images = [name for name in columns if types[name] == "Image"]
        class_label = next((name for name in columns if types[name] == "ClassLabel"), None)
        self.label = named_column(columns, label, (*LABELS, "fine_label"), "label", where) or class_label
        self.classes: tuple[str, ...] = tuple(getattr(table.features.get(self.label), "names", None) or ())
        self.kind = "text" if text is not None or not images else "images"
        self.column = (
            images[0] if self.kind == "images" else named_column(columns, text, TEXTS, "text", where)
        )
        if self.column is None:
            raise RandomSetError(
                "the data set has neither images nor texts",
                got=", ".join(f"{name}: {kind}" for name, kind in types.items()),
                expected="an image column or a text column",
                remedy="Name it with text=…",
            )

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Any:
        row = self.table[int(index)]
        value = row[self.column]
        if self.kind == "images":
            value = pixels_from_pil(value)
        return value if self.label is None else (value, row[self.label])


def class_names(data: Any) -> tuple[str, ...]:
    """Return the class names of a data set object in label order, or an empty tuple."""
    if is_huggingface(data):
        return () if hasattr(data, "keys") else HuggingFaceDataset(data).classes
    names = getattr(data, "classes", None) if isinstance(data, Dataset) else None
    given = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return tuple(names) if given and names else ()


def read_dataset(data: Dataset[Any], name: str, progress: bool | None) -> tuple[Any, list[Any] | None]:
    """Read an entire data set: inputs as a tensor or a list of texts, and labels if items are pairs."""
    if type(data) is TensorDataset and len(data.tensors) == 2:
        return data.tensors[0], list(data.tensors[1].tolist())
    try:
        total = len(data)  # type: ignore[arg-type]
    except TypeError:
        total = None
    inputs: list[Any] = []
    labels: list[Any] = []
    loader = DataLoader(data, batch_size=64, num_workers=usual_workers(data), collate_fn=list)
    with progress_bar(f"reading {name}", total, progress) as advance:
        for batch in loader:
            for row in batch:
                pair = isinstance(row, (tuple, list)) and len(row) == 2
                inputs.append(_to_tensor(row[0] if pair else row))
                labels += [row[1]] if pair else []
            advance(len(batch))
    if not inputs:
        raise ShapeError("the data set is empty", got=name, expected="at least one sample")
    if labels and len(labels) != len(inputs):
        raise RandomSetError(
            "some samples have no label", got=f"{len(inputs) - len(labels)} of {len(inputs)}"
        )
    if isinstance(inputs[0], str):
        return inputs, labels or None
    shapes = {tuple(value.shape) for value in inputs}
    if len(shapes) > 1:
        raise ShapeError(
            "inputs have different shapes",
            got=" and ".join(map(str, sorted(shapes)[:3])),
            remedy="Resize them in the data set",
        )
    return torch.stack(inputs), labels or None


def _to_tensor(value: Any) -> Any:
    """Convert an input to a tensor, unless it is a text."""
    if isinstance(value, (str, Tensor)):
        return value
    if is_picture(value):
        return pixels_from_pil(value)
    try:
        return torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError):
        raise RandomSetError(
            "unsupported type of input",
            got=type(value).__name__,
            expected="a tensor, an array, a Pillow image, or a string",
        ) from None
