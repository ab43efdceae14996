"""Data sets that live in Python: torch's, torchvision's and Hugging Face's, one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from randomset._core.batches import usual_workers
from randomset._core.progress import progress_bar
from randomset.data.frames import LABELS, TEXTS, named_column
from randomset.data.pictures import pixels_from_picture
from randomset.errors import RandomSetError, ShapeError

__all__ = ["HubRows", "gathered", "is_hub", "own_classes"]


def is_hub(data: Any) -> bool:
    """Say whether this is a data set of Hugging Face, without importing their package."""
    return type(data).__module__.split(".")[0] == "datasets"


class HubRows(Dataset[Any]):
    """A table of Hugging Face's `datasets` as (input, label) pairs: images as bytes (C × H × W), or texts.

    Its image or text column and its label column are found by their kinds and names, or given. Where there is
    no label, a row is the input alone.
    """

    def __init__(self, table: Any, label: str | None = None, text: str | None = None) -> None:
        if hasattr(table, "keys"):
            raise RandomSetError(
                "this is a collection of splits",
                got=", ".join(table.keys()),
                remedy="Choose one: data['test']",
            )
        if not hasattr(table, "__len__"):
            raise RandomSetError(
                "a stream has no length",
                remedy="Give its batches: a DataLoader of table.with_format('torch')",
            )
        self.table, kinds = table, {name: type(kind).__name__ for name, kind in table.features.items()}
        where = "the data set"
        named = [name for name, kind in kinds.items() if kind == "ClassLabel"]
        usual = (*LABELS, "fine_label")
        self.label = named_column(list(kinds), label, usual, "labels", where) or (named[0] if named else None)
        self.classes = self._names()
        images = [name for name, kind in kinds.items() if kind == "Image"]
        self.kind = "text" if text is not None or not images else "images"
        self.column = (
            images[0] if self.kind == "images" else named_column(list(kinds), text, TEXTS, "texts", where)
        )
        if self.column is None:
            raise RandomSetError(
                "the data set has neither images nor texts",
                got=", ".join(f"{name}: {kind}" for name, kind in kinds.items()),
                expected="a column of images, or one of texts",
                remedy="Name it with text=…",
            )

    def _names(self) -> tuple[str, ...]:
        feature = self.table.features.get(self.label)
        return tuple(getattr(feature, "names", None) or ())

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: int) -> Any:
        row = self.table[int(place)]
        value = row[self.column]
        if self.kind == "images":
            value = pixels_from_picture(value)
        return value if self.label is None else (value, row[self.label])


def own_classes(data: Any) -> tuple[str, ...]:
    """Return the names of the classes that a data set in Python tells, in label order; else nothing."""
    if is_hub(data):
        return () if hasattr(data, "keys") else HubRows(data).classes
    names = getattr(data, "classes", None) if isinstance(data, Dataset) else None
    given = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return tuple(names) if given and names else ()


def gathered(
    data: Dataset[Any], name: str, workers: int | None = None, progress: bool | None = None
) -> tuple[Any, list[Any] | None]:
    """Read a whole data set: inputs as a tensor or a list of texts, and labels if its rows are pairs."""
    if type(data) is TensorDataset and len(data.tensors) == 2:
        return data.tensors[0], list(data.tensors[1].tolist())
    try:
        total = len(data)  # type: ignore[arg-type]
    except TypeError:
        total = None
    inputs: list[Any] = []
    labels: list[Any] = []
    readers = usual_workers(data) if workers is None else workers
    loader = DataLoader(data, batch_size=64, num_workers=readers, collate_fn=list)
    with progress_bar(f"reading {name}", total, progress) as advance:
        for batch in loader:
            for row in batch:
                pair = isinstance(row, (tuple, list)) and len(row) == 2
                inputs.append(_plain(row[0] if pair else row))
                labels += [row[1]] if pair else []
            advance(len(batch))
    if not inputs:
        raise ShapeError("the data set is empty", got=name, expected="at least one row")
    if labels and len(labels) != len(inputs):
        raise RandomSetError("some rows have no label", got=f"{len(inputs) - len(labels)} of {len(inputs)}")
    if isinstance(inputs[0], str):
        return inputs, labels or None
    shapes = {tuple(value.shape) for value in inputs}
    if len(shapes) > 1:
        raise ShapeError(
            "the inputs are of several shapes",
            got=" and ".join(map(str, sorted(shapes)[:3])),
            remedy="Resize them in the data set",
        )
    return torch.stack(inputs), labels or None


def _plain(value: Any) -> Any:
    """Turn one input into a tensor; texts stay."""
    if isinstance(value, (str, Tensor)):
        return value
    if type(value).__module__.startswith("PIL."):
        return pixels_from_picture(value)
    try:
        return torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError):
        raise RandomSetError(
            "an input of the data set is of no known kind",
            got=type(value).__name__,
            expected="a tensor, an array, an image of Pillow, or a text",
        ) from None
