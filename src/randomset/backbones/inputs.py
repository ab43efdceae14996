"""The inputs of a model: their specification, their conversion, and standardisation in the network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from randomset._core.checks import is_number, is_whole
from randomset.errors import FileFormatError, RandomSetError, ShapeError

__all__ = ["InputSpec", "Standardise", "convert_images"]

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
_UNIT = 1.5  # values up to this count as being scaled to [0, 1]
_OFF_SCALE = 20  # values larger than in training by more than this factor are on another scale


@dataclass(frozen=True)
class InputSpec:
    """Shape, value range and meaning of a model's inputs; saved with the model.

    Args:
        shape: of one sample: (C, H, W) for images, (F,) for features, (T,) for tokens.
        bytes: whether the model takes uint8 itself; otherwise bytes are divided by 255.
        largest: the largest absolute value in training, with bytes counted as [0, 1]; None if unknown.
        tokens: whether inputs are token ids.
        columns: the names of the features of a table.
        classes: the names of the classes.

    >>> spec = InputSpec((3, 32, 32), largest=1.0)
    >>> images, done = spec.fit(torch.zeros(28, 28, dtype=torch.uint8))
    >>> tuple(images.shape), images.dtype, done[:2]
    ((1, 3, 32, 32), torch.float32, ['divided by 255', 'grey repeated as 3 channels'])
    """

    shape: tuple[int, ...]
    bytes: bool = False
    largest: float | None = None
    tokens: bool = False
    columns: tuple[str, ...] | None = None
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, inputs: Tensor, classes: Sequence[str] = ()) -> InputSpec:
        """Return the specification of a batch of inputs."""
        tokens = inputs.dim() == 2 and inputs.dtype == torch.long
        spec = cls(tuple(inputs.shape[1:]), inputs.dtype == torch.uint8, 0.0, tokens, None, tuple(classes))
        return spec.grown(inputs)

    def grown(self, inputs: Tensor) -> InputSpec:
        """Update the largest value with another batch."""
        if not inputs.numel() or inputs.is_complex():
            return self
        largest = float(inputs.max() if inputs.dtype == torch.uint8 else inputs.abs().max())
        return replace(self, largest=max(self.largest or 0.0, largest))

    def scaled(self) -> InputSpec:
        """Return the specification of a model that divides bytes by 255 itself."""
        return replace(self, bytes=False, largest=(self.largest or 0.0) / 255) if self.bytes else self

    # -- files ----------------------------------------------------------------------------------

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any], place: object = "the model") -> InputSpec | None:
        """Read the specification from the notes of a model; None if they have none."""
        shape, tokens, columns = (notes.get(name) for name in ("input_shape", "tokens", "columns"))
        largest, classes = notes.get("largest_input"), notes.get("classes", [])
        valid = {
            "input_shape": shape is None or (_is_list(shape, int) and min(shape, default=0) > 0),
            "tokens": tokens is None or is_whole(tokens, 1),
            "columns": columns is None or _is_list(columns, str),
            "classes": _is_list(classes, str),
            "largest_input": largest is None or is_number(largest, float("-inf")),
        }
        if wrong := [name for name, fine in valid.items() if not fine]:
            raise FileFormatError(
                "the model's notes on its inputs are damaged",
                got=f"{wrong[0]} {notes.get(wrong[0])!r:.60} in {place}",
                remedy="Train it again",
            )
        if shape is None:
            return None
        columns = None if columns is None else tuple(columns)
        known = float(largest) if largest is not None and float(largest) > 0 else None
        return cls(tuple(shape), bool(notes.get("bytes")), known, bool(tokens), columns, tuple(classes))

    def to_notes(self) -> dict[str, Any]:
        """Return the specification as stored in the notes of a model."""
        return {
            "input_shape": list(self.shape),
            "bytes": self.bytes,
            "tokens": self.shape[0] if self.tokens else None,
            "columns": None if self.columns is None else list(self.columns),
            "classes": list(self.classes),
            "largest_input": self.largest or 0.0,
        }

    # -- inputs ---------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """The kind of the inputs: "images", "features", "texts" or "arrays"."""
        if self.tokens:
            return "texts"
        return {1: "features", 3: "images"}.get(len(self.shape), "arrays")

    @property
    def expected(self) -> str:
        """The shape of a batch in words, for messages."""
        if self.tokens:
            return "texts"
        return (
            f"{' × '.join(['n', *map(str, self.shape)])} {'images' if self.kind == 'images' else 'numbers'}"
        )

    def by_name(self, frame: Any) -> Any:
        """Return the columns of a data frame in the order of training; anything without names is unchanged.

        Raises `ShapeError` if a column is missing. Other columns, such as the labels, are left out.
        """
        names = [str(name) for name in getattr(frame, "columns", ())]
        if self.columns is None or names == [str(number) for number in range(len(names))]:
            return frame
        if missing := [name for name in self.columns if name not in names]:
            raise ShapeError(
                "the table lacks a column that the network was trained on",
                got=f"no {missing[0]} among {', '.join(names[:10])}",
                remedy="Rename the columns, or pass an array without names",
            )
        return frame[[frame.columns[names.index(name)] for name in self.columns]]

    def batched(self, inputs: Tensor) -> Tensor:
        """Add a missing batch or channel dimension, and move channels first: a view, without a copy."""
        images, given = self.kind == "images", tuple(inputs.shape)
        if not inputs.dtype.is_signed and inputs.dtype.itemsize > 1:
            inputs = inputs.long()  # torch cannot calculate with larger unsigned integers
        if images and inputs.dim() == 2:
            if given[1] == math.prod(self.shape):
                raise ShapeError(
                    "the images are flattened", got=f"inputs of shape {given}", expected=self.expected
                )
            inputs = inputs[None]  # one grey image
        channels_last = images and min(given[:2] or (0,)) > 4 and given[-1] in (1, 3, 4)
        if images and inputs.dim() == 3 and channels_last and self.shape[-1] not in (1, 3, 4):
            inputs = inputs.permute(2, 0, 1)[None]  # one image, channels last
        elif inputs.dim() == len(self.shape) and not self.tokens:
            if images and self.shape[0] == 3 and len(inputs) == 4:
                raise ShapeError(
                    "one image with four channels, or four grey images?",
                    got=f"inputs of shape {given}",
                    expected=self.expected,
                    remedy="Add a dimension: inputs[None] for one image, inputs[:, None] for several",
                )
            colours = {1} if self.shape[0] == 1 else {1, 3, self.shape[0]}
            is_batch = images and len(inputs) not in colours  # grey images without a channel
            inputs = inputs[:, None] if is_batch else inputs[None]
        if images and inputs.dim() == 4:
            first, last = inputs.shape[1], inputs.shape[3]
            if first not in (1, 3, 4, self.shape[0]) and last in (1, 3, 4, self.shape[0]):
                inputs = inputs.permute(0, 3, 1, 2)
        return inputs

    def fit(self, inputs: Tensor, *, resize: bool = True, name: str = "inputs") -> tuple[Tensor, list[str]]:
        """Convert inputs to the form that the model takes; return them and a description of each step.

        Missing dimensions are added, channels moved first, bytes scaled, colours and (with `resize`) sizes
        converted. Raises `ShapeError` for inputs that cannot be converted or are on a different scale.
        """
        done: list[str] = []
        given = tuple(inputs.shape)
        inputs = self.batched(inputs)
        if self.kind != "images" or inputs.dim() != 4:
            self._check_shape(inputs, given, name, exact=not self.tokens)
            return inputs, done
        if inputs.shape[1] not in (1, 3, 4, self.shape[0]):
            raise ShapeError(
                "images must have 1, 3 or 4 channels", got=f"{name} of shape {given}", expected=self.expected
            )
        self.check_scale(inputs, name)
        if inputs.dtype == torch.uint8 and not self.bytes:
            inputs = inputs.float() / 255
            done.append("divided by 255")
        size = self.shape[1:] if resize else inputs.shape[2:]
        if tuple(inputs.shape[1:]) != (self.shape[0], *size):
            inputs, steps = convert_images(inputs, (self.shape[0], *size))
            done += steps
        if self.bytes and inputs.is_floating_point():
            inputs = (inputs * 255).round().clamp(0, 255).to(torch.uint8)
            done.append("multiplied by 255")
        self._check_shape(inputs, given, name, exact=resize)
        return inputs, done

    def _check_shape(self, inputs: Tensor, given: tuple[int, ...], name: str, *, exact: bool) -> None:
        shape = tuple(inputs.shape[1:])
        if shape != self.shape if exact else len(shape) != len(self.shape):
            raise ShapeError(
                "wrong input shape for the model", got=f"{name} of shape {given}", expected=self.expected
            )

    @property
    def _most(self) -> float:
        """The largest absolute value of floating-point images on the scale of the training data."""
        return math.inf if self.largest is None else _OFF_SCALE * max(self.largest, 1e-12)

    def off_scale(self, images: Tensor) -> Tensor:
        """Return which floating-point images (n × C × H × W) have far larger values than in training (n).

        >>> InputSpec((1, 2, 2), largest=1.0).off_scale(torch.tensor([1.0, 255.0])[:, None, None, None])
        tensor([False,  True])
        """
        return images.flatten(1).abs().amax(1) > self._most

    def check_scale(self, images: Tensor, name: str) -> None:
        """Raise if the images have a different value range than in training."""
        if self.largest is None or not len(images):
            return
        from_bytes = images.dtype == torch.uint8
        largest = float(images.abs().max() if images.is_floating_point() else images.max())
        wrong = self.bytes and not from_bytes and largest > 1
        wrong |= not self.bytes and from_bytes and self.largest > _UNIT
        wrong |= not self.bytes and not from_bytes and largest > self._most
        if wrong:
            expected = "uint8" if self.bytes else f"values up to about {self.largest:g}"
            if not self.bytes and self.largest <= _UNIT:
                expected += ", or bytes (uint8), which are divided by 255"
            raise ShapeError(
                "the inputs are on a different scale than in training",
                got=f"{name} with {'bytes' if from_bytes else 'values'} up to {largest:g}",
                expected=expected,
            )


def convert_images(images: Tensor, shape: Sequence[int]) -> tuple[Tensor, list[str]]:
    """Convert images (n × C × H × W) to shape (C, H, W); return them and a description of each step.

    Colour is converted to luma, grey is repeated, a fourth (alpha) channel is dropped, and sizes are changed
    by bilinear interpolation with antialiasing. The dtype is preserved.

    >>> images, done = convert_images(torch.zeros(2, 1, 28, 28), (3, 32, 32))
    >>> tuple(images.shape), done
    ((2, 3, 32, 32), ['grey repeated as 3 channels', 'resized from 28 × 28 to 32 × 32'])
    """
    if images.dim() != 4 or len(shape) != 3:
        raise ShapeError("invalid image shape", got=str(tuple(images.shape)), expected="(n × C × H × W)")
    channels, height, width = shape
    done = []
    if images.shape[1] == 4 and channels != 4:
        images, done = images[:, :3], ["alpha dropped"]
    given = images.shape[1]
    if given == 3 and channels == 1:
        weight = torch.tensor(_LUMA, device=images.device)[None, :, None, None]
        images = _cast_like(images, (images.float() * weight).sum(1, keepdim=True))
        done.append("colour converted to grey")
    elif given == 1 and channels > 1:
        images = images.expand(-1, channels, -1, -1)
        done.append(f"grey repeated as {channels} channels")
    elif given != channels:
        raise ShapeError("cannot convert channels", got=f"{given} channels", expected=f"{channels}")
    if tuple(images.shape[2:]) != (height, width):
        done.append(f"resized from {images.shape[2]} × {images.shape[3]} to {height} × {width}")
        images = torch.cat([_resized(part, (height, width)) for part in images.split(1024)])  # bounds memory
    return images.contiguous(), done


def _resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    new = functional.interpolate(images.float(), size, mode="bilinear", antialias=True, align_corners=False)
    return _cast_like(images, new)


def _cast_like(images: Tensor, values: Tensor) -> Tensor:
    """Cast new pixel values to the dtype of the original images."""
    if images.dtype == torch.uint8:
        return values.round().clamp(0, 255).to(torch.uint8)
    return values.to(images.dtype)


def _is_list(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


# -- standardisation inside the network ------------------------------------------------------------


_CHUNK = 8192


class Standardise(nn.Module):
    """(x − mean) / std, per feature (B × F) or per channel (B × C × H × W); uint8 is divided by 255 first.

    >>> standardise = Standardise.from_data(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
    >>> standardise(torch.tensor([[2.0, 40.0]]))
    tensor([[0., 2.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__()
        mean, std = (
            torch.as_tensor(value, dtype=torch.float32).flatten().clone(memory_format=torch.contiguous_format)
            for value in (mean, std)
        )
        valid = mean.shape == std.shape
        if not valid or not (mean.is_meta or ((std > 0) & (mean + std).isfinite()).all()):
            raise RandomSetError(
                "invalid mean or std",
                got=f"{len(mean)} means and {len(std)} standard deviations",
                expected="one of each per feature or channel, finite, with positive standard deviations",
            )
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @classmethod
    def from_data(cls, inputs: Tensor, rows: Tensor | None = None) -> Standardise:
        """Compute mean and standard deviation of data, or of some rows; constant features keep their scale.

        Rows are read in chunks, so that the data may be on disk.
        """
        axes = [axis for axis in range(inputs.dim()) if axis != 1]
        chunks = (torch.arange(len(inputs)) if rows is None else rows).split(_CHUNK)
        moments = [torch.var_mean(_to_float(inputs[chunk]).double(), axes, correction=0) for chunk in chunks]
        variances, means = (torch.stack(values) for values in zip(*moments, strict=True))
        weight = torch.tensor([len(chunk) for chunk in chunks], dtype=torch.double)[:, None]
        weight = weight / weight.sum()
        mean = (weight * means).sum(0)
        std = (weight * (variances + (means - mean) ** 2)).sum(0).sqrt()
        # Rounding gives a constant feature a tiny standard deviation instead of zero.
        constant = std <= 1e-7 * mean.abs().clamp_min(1e-30)
        return cls(mean, torch.where(constant, 1.0, std))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return standardised inputs of the same shape."""
        inputs = _to_float(inputs, self.mean.dtype)
        if inputs.dim() < 2 or (inputs.shape[1] != len(self.mean) and len(self.mean) != 1):
            raise ShapeError(
                "the inputs do not fit the network",
                got=str(tuple(inputs.shape)),
                expected=f"(batch, {len(self.mean)}, …)",
            )
        shape = (-1,) + (1,) * (inputs.dim() - 2)
        mean, std = (value.to(inputs.dtype).view(shape) for value in (self.mean, self.std))
        return (inputs - mean) / std

    def extra_repr(self) -> str:  # noqa: D102
        return f"{len(self.mean)} features or channels"


def _to_float(inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    if inputs.dtype == torch.uint8:
        return inputs.to(dtype) / 255
    return inputs if inputs.is_floating_point() else inputs.to(dtype)
