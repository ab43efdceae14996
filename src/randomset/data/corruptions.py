"""What can happen to an image: noise, rotation, blur, less contrast, something in front of it.

Images are floats (n × C × H × W) in the range of pixels, [0, 1], and stay in it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from randomset.errors import RandomSetError, ShapeError

__all__ = ["gaussian_blur", "gaussian_noise", "lower_contrast", "occluded", "rotated", "rotated_between"]


def gaussian_noise(images: Tensor, scale: float, seed: int = 0) -> Tensor:
    """Add normal noise of a standard deviation, and clip to [0, 1] afterwards.

    >>> gaussian_noise(torch.full((1, 1, 1, 3), 0.5), scale=0.0)
    tensor([[[[0.5000, 0.5000, 0.5000]]]])
    """
    _check(images)
    if not scale >= 0:
        raise RandomSetError("the scale of the noise is negative", got=scale)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    return (images + scale * noise.to(images)).clamp(0, 1)


def rotated(images: Tensor, degrees: float | Tensor) -> Tensor:
    """Turn each image counter-clockwise about its centre, by one angle or by one for each; corners become 0.

    >>> rotated(torch.tensor([[[[0.0, 1.0], [0.0, 0.0]]]]), 90).round()
    tensor([[[[1., 0.],
              [0., 0.]]]])
    """
    _check(images)
    angle = torch.deg2rad(torch.as_tensor(degrees, dtype=torch.float32)).expand(len(images)).to(images)
    height, width = images.shape[2:]
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # Coordinates run from −1 to 1 in both directions: of an oblong image a turn needs their ratio.
    ratio = height / width
    first = torch.stack((cos, -sin * ratio, zero), 1)
    second = torch.stack((sin / ratio, cos, zero), 1)
    grid = functional.affine_grid(torch.stack((first, second), 1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False).clamp(0, 1)


def rotated_between(images: Tensor, low: float, high: float, seed: int = 0) -> Tensor:
    """Turn each image by an angle drawn evenly from [low, high], in degrees.

    >>> rotated_between(torch.ones(2, 1, 4, 4), 0, 0).shape
    torch.Size([2, 1, 4, 4])
    """
    if not low <= high:
        raise RandomSetError("the range of angles is empty", got=f"{low} to {high}")
    share = torch.rand(len(images), generator=torch.Generator().manual_seed(seed))
    return rotated(images, low + (high - low) * share)


def gaussian_blur(images: Tensor, scale: float) -> Tensor:
    """Blur with a Gaussian of a standard deviation in pixels; the edges are mirrored.

    >>> gaussian_blur(torch.full((1, 1, 5, 5), 0.25), 1.0)[0, 0, 0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500, 0.2500])
    """
    _check(images)
    if not scale > 0:
        raise RandomSetError("the blur has no width", got=scale, expected="pixels, more than 0")
    channels, height, width = images.shape[1:]
    reach = min(math.ceil(3 * scale), height - 1, width - 1)
    weight = torch.exp(-(torch.arange(-reach, reach + 1, dtype=torch.float32) ** 2) / (2 * scale**2))
    weight = (weight / weight.sum()).to(images).expand(channels, 1, -1)
    padded = functional.pad(images, (reach,) * 4, mode="reflect")
    across = functional.conv2d(padded, weight[:, :, None, :], groups=channels)
    return functional.conv2d(across, weight[:, :, :, None], groups=channels).clamp(0, 1)


def lower_contrast(images: Tensor, factor: float) -> Tensor:
    """Move every pixel towards the mean of its image; a factor of 1 changes nothing, 0 leaves the mean.

    >>> lower_contrast(torch.tensor([[[[0.0, 1.0]]]]), 0.5)
    tensor([[[[0.2500, 0.7500]]]])
    """
    _check(images)
    if not 0 <= factor <= 1:
        raise RandomSetError("the factor is out of range", got=factor, expected="0 ≤ factor ≤ 1")
    mean = images.mean((1, 2, 3), keepdim=True)
    return mean + factor * (images - mean)


def occluded(images: Tensor, share: float, seed: int = 0) -> Tensor:
    """Cover a square of a share of each image's height and width, at a place drawn evenly, with zeros.

    >>> int(occluded(torch.ones(1, 1, 10, 10), 0.3).sum())
    91
    """
    _check(images)
    if not 0 <= share <= 1:
        raise RandomSetError("the share is out of range", got=share, expected="0 ≤ share ≤ 1")
    generator = torch.Generator().manual_seed(seed)
    inside = []
    for size in images.shape[2:]:
        length = round(share * size)
        start = (torch.rand(len(images), 1, generator=generator) * (size - length + 1)).floor()
        place = torch.arange(size)
        inside.append(((place >= start) & (place < start + length)).to(images.device))
    covered = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return images.masked_fill(covered, 0)


def _check(images: Tensor) -> None:
    if images.dim() != 4 or not images.is_floating_point():
        raise ShapeError(
            "these are no images to change",
            got=f"{images.dtype} {tuple(images.shape)}",
            expected="floats (n × C × H × W) in [0, 1]",
            remedy="Divide bytes by 255 first",
        )
