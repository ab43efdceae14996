"""Preprocessing that is part of the network, and saved and exported with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError, ShapeError

__all__ = ["Standardise"]

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
