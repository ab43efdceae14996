"""Convert images to the channels and size that a network expects."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from randomset.errors import MissingPackageError, ShapeError

__all__ = ["converted", "png_from_image"]

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def converted(images: Tensor, shape: Sequence[int]) -> tuple[Tensor, list[str]]:
    """Convert images (n × C × H × W) to shape (C, H, W); return them and a description of each step.

    Colour is converted to luma, grey is repeated, a fourth (alpha) channel is dropped, and sizes change by
    bilinear interpolation with antialiasing. The dtype is preserved.

    >>> images, done = converted(torch.zeros(2, 1, 28, 28), (3, 32, 32))
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
        parts = [_resized(part, (height, width)) for part in images.split(1024)]  # bounds memory
        images = torch.cat(parts)
    return images.contiguous(), done


def png_from_image(image: Tensor, largest: int | None = None) -> bytes:
    """Encode an image (C × H × W), uint8 or floats in [0, 1], as PNG, shrunk to a largest side if given.

    >>> png_from_image(torch.zeros(1, 4, 4))[1:4]
    b'PNG'
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError("pillow", "data") from None
    pixels = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).round().to(torch.uint8)
    array = pixels[:3].permute(1, 2, 0).contiguous().numpy() if len(pixels) >= 3 else pixels[0].numpy()
    encoded = Image.fromarray(array)
    if largest is not None:
        encoded.thumbnail((largest, largest))
    stream = io.BytesIO()
    encoded.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    new = functional.interpolate(images.float(), size, mode="bilinear", antialias=True, align_corners=False)
    return _cast_like(images, new)


def _cast_like(images: Tensor, values: Tensor) -> Tensor:
    """Cast new pixel values to the dtype of the original images."""
    if images.dtype == torch.uint8:
        return values.round().clamp(0, 255).to(torch.uint8)
    return values.to(images.dtype)
