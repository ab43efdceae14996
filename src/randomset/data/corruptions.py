"""Image corruptions: noise, rotation, blur, contrast and occlusion.

Images are floats (n × C × H × W) in [0, 1] and stay in that range.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from randomset.errors import RandomSetError, ShapeError

__all__ = ["gaussian_blur", "gaussian_noise", "lower_contrast", "occluded", "rotated", "rotated_between"]


def gaussian_noise(images: Tensor, scale: float, seed: int = 0) -> Tensor:
    """Add Gaussian noise with standard deviation `scale`, then clip to [0, 1].

    >>> gaussian_noise(torch.full((1, 1, 1, 3), 0.5), scale=0.0)
    tensor([[[[0.5000, 0.5000, 0.5000]]]])
    """
    _check(images)
    if not scale >= 0:
        raise RandomSetError("scale must be non-negative", got=scale)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    return (images + scale * noise.to(images)).clamp(0, 1)


def rotated(images: Tensor, degrees: float | Tensor) -> Tensor:
    """Rotate counter-clockwise about the centre, by one angle or one per image; corners are filled with 0.

    >>> rotated(torch.tensor([[[[0.0, 1.0], [0.0, 0.0]]]]), 90).round()
    tensor([[[[1., 0.],
              [0., 0.]]]])
    """
    _check(images)
    angle = torch.deg2rad(torch.as_tensor(degrees, dtype=torch.float32)).expand(len(images)).to(images)
    height, width = images.shape[2:]
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # grid coordinates run from −1 to 1 in both directions, so rotation depends on the aspect ratio
    ratio = height / width
    first = torch.stack((cos, -sin * ratio, zero), 1)
    second = torch.stack((sin / ratio, cos, zero), 1)
    grid = functional.affine_grid(torch.stack((first, second), 1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False).clamp(0, 1)


def rotated_between(images: Tensor, low: float, high: float, seed: int = 0) -> Tensor:
    """Rotate each image by an angle drawn uniformly from [low, high], in degrees.

    >>> rotated_between(torch.ones(2, 1, 4, 4), 0, 0).shape
    torch.Size([2, 1, 4, 4])
    """
    if not low <= high:
        raise RandomSetError("low exceeds high in the range of angles", got=f"{low} to {high}")
    share = torch.rand(len(images), generator=torch.Generator().manual_seed(seed))
    return rotated(images, low + (high - low) * share)


def gaussian_blur(images: Tensor, scale: float) -> Tensor:
    """Blur with a Gaussian of standard deviation `scale` in pixels, with reflect padding.

    >>> gaussian_blur(torch.full((1, 1, 5, 5), 0.25), 1.0)[0, 0, 0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500, 0.2500])
    """
    _check(images)
    if not scale > 0:
        raise RandomSetError("scale must be positive", got=scale)
    channels, height, width = images.shape[1:]
    reach = min(math.ceil(3 * scale), height - 1, width - 1)
    weight = torch.exp(-(torch.arange(-reach, reach + 1, dtype=torch.float32) ** 2) / (2 * scale**2))
    weight = (weight / weight.sum()).to(images).expand(channels, 1, -1)
    padded = functional.pad(images, (reach,) * 4, mode="reflect")
    across = functional.conv2d(padded, weight[:, :, None, :], groups=channels)
    return functional.conv2d(across, weight[:, :, :, None], groups=channels).clamp(0, 1)


def lower_contrast(images: Tensor, factor: float) -> Tensor:
    """Scale the contrast of each image about its mean; 1 leaves it unchanged, 0 leaves only the mean.

    >>> lower_contrast(torch.tensor([[[[0.0, 1.0]]]]), 0.5)
    tensor([[[[0.2500, 0.7500]]]])
    """
    _check(images)
    if not 0 <= factor <= 1:
        raise RandomSetError("factor is out of range", got=factor, expected="0 ≤ factor ≤ 1")
    mean = images.mean((1, 2, 3), keepdim=True)
    return mean + factor * (images - mean)


def occluded(images: Tensor, share: float, seed: int = 0) -> Tensor:
    """Set a rectangle of `share` of each image's height and width to zero, at a random position.

    >>> int(occluded(torch.ones(1, 1, 10, 10), 0.3).sum())
    91
    """
    _check(images)
    if not 0 <= share <= 1:
        raise RandomSetError("share is out of range", got=share, expected="0 ≤ share ≤ 1")
    generator = torch.Generator().manual_seed(seed)
    inside = []
    for size in images.shape[2:]:
        length = round(share * size)
        start = (torch.rand(len(images), 1, generator=generator) * (size - length + 1)).floor()
        position = torch.arange(size)
        inside.append(((position >= start) & (position < start + length)).to(images.device))
    covered = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return images.masked_fill(covered, 0)


def _check(images: Tensor) -> None:
    if images.dim() != 4 or not images.is_floating_point():
        raise ShapeError(
            "images must be floating-point",
            got=f"{images.dtype} {tuple(images.shape)}",
            expected="floats (n × C × H × W) in [0, 1]",
            remedy="Divide bytes by 255 first",
        )
