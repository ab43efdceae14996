"""Images as files, for pages and reports."""

from __future__ import annotations

import io

import torch
from torch import Tensor

from randomset.errors import MissingPackageError

__all__ = ["png_from_image"]


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
