"""The paper's data augmentation, random shifts and flips, applied to a batch on its device."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["shifted_and_flipped"]


def shifted_and_flipped(images: Tensor, shift: float = 0.0, flip: bool = False) -> Tensor:
    """Shift each image by up to `shift` of its size in each direction, and flip half of the images.

    (B × C × H × W) → (B × C × H × W). Edges are replicated. Random numbers come from the CPU generator, so
    that a seed gives the same result on every device.

    >>> _ = torch.manual_seed(1)
    >>> shifted_and_flipped(torch.arange(4.0).expand(1, 1, 1, 4), shift=0.5)
    tensor([[[[0., 0., 0., 1.]]]])
    """
    count, channels, height, width = images.shape
    rows = _moved(count, height, shift)
    columns = _moved(count, width, shift)
    if flip:
        mirrored = torch.rand(count) < 0.5
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    device = images.device
    return images[
        torch.arange(count, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[None, :, None, None],
        rows.to(device)[:, None, :, None],
        columns.to(device)[:, None, None, :],
    ]


def _moved(count: int, size: int, shift: float) -> Tensor:
    """Return the source index of each pixel along one axis: (count × size)."""
    reach = int(shift * size)
    places = torch.arange(size).expand(count, size)
    if not reach:
        return places
    return (places + torch.randint(-reach, reach + 1, (count, 1))).clamp(0, size - 1)
