"""Data of every kind as batches that a model takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from randomset._core.batches import split_batch, usual_workers
from randomset.data.conversion import converted
from randomset.data.datasets import HuggingFaceDataset, is_huggingface
from randomset.data.images import pixels_from_pil
from randomset.errors import RandomSetError, ShapeError

__all__ = ["Feed", "Layout", "Rows", "batches_of", "collated", "count_of", "digests_of"]


@dataclass(frozen=True)
class Layout:
    """The form of inputs that a model takes: the shape of one, whether they are bytes, and how large."""

    shape: tuple[int, ...]
    bytes: bool
    largest: float = 1.0

    @classmethod
    def of(cls, inputs: Tensor) -> Layout:
        """Take the form of a batch."""
        return cls(tuple(inputs.shape[1:]), inputs.dtype == torch.uint8, _largest(inputs))

    def grown(self, inputs: Tensor) -> Layout:
        """Take in how large the numbers of another batch are."""
        return replace(self, largest=max(self.largest, _largest(inputs)))


def _largest(inputs: Tensor) -> float:
    return float(inputs.abs().max()) if inputs.numel() and not inputs.is_complex() else 0.0


@dataclass
class Feed:
    """Makes batches of any data set into what a model takes: pixels of sources in [0, 1], in one layout."""

    pixels: bool = False
    like: Layout | None = None
    remarks: list[str] = field(default_factory=list)

    def __call__(self, batch: Any) -> tuple[Any, Any]:
        """Return inputs and labels of a batch."""
        inputs, labels = (batch, None) if _is_texts(batch) else split_batch(batch)
        if hasattr(inputs, "__array__") and not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(np.asarray(inputs))
        if not isinstance(inputs, Tensor):
            return inputs, labels
        from_bytes = inputs.dtype == torch.uint8
        if self.pixels and from_bytes:
            inputs = inputs.float() / 255
        return self._alike(inputs, from_bytes), labels

    def _alike(self, inputs: Tensor, from_bytes: bool) -> Tensor:
        if self.like is None:
            return inputs
        self._check_scale(inputs, from_bytes)
        done: list[str] = []
        if inputs.dim() == 4 and len(self.like.shape) == 3 and tuple(inputs.shape[1:]) != self.like.shape:
            inputs, done = converted(inputs, self.like.shape)
        if inputs.dim() != 4:
            pass  # numbers of a table have no range that is known
        elif self.like.bytes and inputs.is_floating_point():
            inputs = (inputs * 255).round().clamp(0, 255).to(torch.uint8)
            done.append("multiplied by 255")
        elif not self.like.bytes and inputs.dtype == torch.uint8:
            inputs = inputs.float() / 255
            done.append("divided by 255")
        self.remarks += [one for one in done if one not in self.remarks]
        if tuple(inputs.shape[1:]) != self.like.shape:
            raise ShapeError(
                "the inputs do not fit the model",
                got=f"samples of shape {tuple(inputs.shape[1:])}",
                expected=str(self.like.shape),
            )
        return inputs

    def _check_scale(self, inputs: Tensor, from_bytes: bool) -> None:
        """Refuse images whose numbers mean something else than those of the test data."""
        like = self.like
        if like is None or inputs.dim() != 4 or not len(inputs):
            return
        largest = float(inputs.abs().max())
        strange = like.bytes and not from_bytes and largest > 1
        strange |= not like.bytes and from_bytes and like.largest > 1.5
        strange |= not like.bytes and not from_bytes and largest > 20 * max(like.largest, 1e-12)
        if strange:
            raise ShapeError(
                "the images are on another scale than the test data",
                got=f"values up to {largest:g}{' from bytes' * from_bytes}",
                expected="bytes" if like.bytes else f"values up to about {like.largest:g}",
                remedy="Bring both to bytes, or to floats in [0, 1]",
            )


def batches_of(
    data: Any, size: int, workers: int | None, name: str
) -> tuple[Iterable[Any], int | None, int | None]:
    """Cut data into batches; tell how many there will be, and how many samples."""
    if is_huggingface(data):
        data = HuggingFaceDataset(data)
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
        if len(data.tensors) > 2:
            raise RandomSetError(
                f"the data of {name} have more than inputs and labels", got=f"{len(data.tensors)} tensors"
            )
        data = tuple(data.tensors[:2]) if len(data.tensors) > 1 else data.tensors[0]
    parts = data if isinstance(data, tuple) else (data,)
    if isinstance(data, (tuple, Tensor)) or hasattr(data, "__array__") or _is_texts(data):
        if len({count_of(part) for part in parts}) != 1 or not count_of(parts[0]):
            raise ShapeError(
                f"the inputs and labels of {name} do not match",
                got=" and ".join(str(count_of(part)) for part in parts),
                expected="as many labels as inputs, at least one",
            )
        rows = Rows(tuple(torch.as_tensor(p) if hasattr(p, "__array__") else p for p in parts), size)
        return rows, len(rows), count_of(parts[0])
    if not isinstance(data, Iterable) or isinstance(data, Mapping):
        raise RandomSetError(
            f"the data of {name} are of no known kind",
            got=type(data).__name__,
            expected="a name or path, (inputs, labels), a data set, or a data loader",
        )
    return data, len(data) if isinstance(data, Sized) else None, None


def _is_texts(data: Any) -> bool:
    return isinstance(data, list) and bool(data) and isinstance(data[0], str)


@dataclass(frozen=True)
class Rows:
    """Inputs and perhaps labels, as slices of a size."""

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
    """Return how many inputs there are; of inputs by name, in the first of them."""
    return len(next(iter(inputs.values()))) if isinstance(inputs, Mapping) else len(inputs)


def collated(rows: list[Any]) -> Any:
    """Make a batch of rows; pictures of Pillow become pixels in [0, 1]."""

    def plain(value: Any) -> Any:
        if type(value).__module__.startswith("PIL."):
            return pixels_from_pil(value).float() / 255
        return value

    try:
        return default_collate(
            [tuple(map(plain, row)) if isinstance(row, (tuple, list)) else plain(row) for row in rows]
        )
    except RuntimeError as error:
        raise ShapeError(
            "the inputs of a batch cannot be put together",
            got=str(error).splitlines()[0],
            remedy="Resize them in the data set",
        ) from None


def digests_of(inputs: Any) -> Tensor:
    """Return two numbers for each input that are equal for equal inputs only, bytes or pixels in [0, 1].

    >>> one = torch.tensor([[0, 255], [7, 7]], dtype=torch.uint8)
    >>> bool((digests_of(one) == digests_of(one.float() / 255)).all())
    True
    """
    if isinstance(inputs, Mapping):
        return torch.stack([digests_of(value) for value in inputs.values()]).sum(0)
    if isinstance(inputs, Tensor):
        numbers = inputs.detach().cpu()
        numbers = numbers.float() / 255 if numbers.dtype == torch.uint8 else numbers.to(torch.float32)
        rows: Iterable[bytes] = (row.tobytes() for row in numbers.contiguous().numpy())
        flat = numbers.reshape(len(numbers), -1)
        constant = (flat == flat[:, :1]).all(1) & (flat.shape[1] > 1)
    else:
        rows = (str(value).encode() for value in inputs)
        constant = torch.zeros(len(inputs), dtype=torch.bool)
    found = b"".join(hashlib.blake2b(row, digest_size=16).digest() for row in rows)
    numbers = torch.from_numpy(np.frombuffer(found, np.int64).reshape(-1, 2).copy())
    return numbers.masked_fill(constant[:, None], 0)  # empty pictures are alike everywhere
