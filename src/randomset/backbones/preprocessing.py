"""What is done to an input before the backbone sees it: part of the network, saved and exported with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError, ShapeError

__all__ = ["Standardise"]

_PIECE = 8192


class Standardise(nn.Module):
    """(x − mean) / std, per feature (B × F) or per channel (B × C × H × W); bytes are first divided by 255.

    >>> standardise = Standardise.from_data(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
    >>> standardise(torch.tensor([[2.0, 40.0]]))
    tensor([[0., 2.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__()
        mean, std = (
            torch.as_tensor(part, dtype=torch.float32).flatten().clone(memory_format=torch.contiguous_format)
            for part in (mean, std)
        )
        shapes_fit = mean.shape == std.shape
        if not shapes_fit or not (mean.is_meta or ((std > 0) & (mean + std).isfinite()).all()):
            raise RandomSetError(
                "mean and std do not fit",
                got=f"{len(mean)} means and {len(std)} deviations",
                expected="one of each per feature or channel, finite, the deviations positive",
            )
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @classmethod
    def from_data(cls, inputs: Tensor, rows: Tensor | None = None) -> Standardise:
        """Take mean and deviation from data, or from some rows; a feature that never changes keeps its scale.

        Many rows are read piece by piece: they may lie on disk.
        """
        axes = [axis for axis in range(inputs.dim()) if axis != 1]
        places = torch.arange(len(inputs)) if rows is None else rows
        parts = [
            torch.var_mean(_as_floats(inputs[part]).double(), axes, correction=0)
            for part in places.split(_PIECE)
        ]
        weight = torch.tensor([len(part) for part in places.split(_PIECE)], dtype=torch.double)[:, None]
        weight = weight / weight.sum()
        means = torch.stack([mean for _, mean in parts])
        mean = (weight * means).sum(0)
        variance = (weight * (torch.stack([var for var, _ in parts]) + (means - mean) ** 2)).sum(0)
        std = variance.sqrt()
        # Rounding leaves a constant feature with a deviation that is tiny, not zero.
        constant = std <= 1e-7 * mean.abs().clamp_min(1e-30)
        return cls(mean, torch.where(constant, 1.0, std))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return standardised inputs of the same shape."""
        inputs = _as_floats(inputs, self.mean.dtype)
        if inputs.dim() < 2 or (inputs.shape[1] != len(self.mean) and len(self.mean) != 1):
            raise ShapeError(
                "the inputs do not fit what the network was made for",
                got=str(tuple(inputs.shape)),
                expected=f"(batch, {len(self.mean)}, …)",
            )
        shape = (-1,) + (1,) * (inputs.dim() - 2)
        mean, std = (part.to(inputs.dtype).view(shape) for part in (self.mean, self.std))
        return (inputs - mean) / std

    def extra_repr(self) -> str:  # noqa: D102
        return f"{len(self.mean)} features or channels"


def _as_floats(inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    if inputs.dtype == torch.uint8:
        return inputs.to(dtype) / 255
    return inputs if inputs.is_floating_point() else inputs.to(dtype)
