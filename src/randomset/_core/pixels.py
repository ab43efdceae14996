"""Pillow images as tensors; Pillow is imported where it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from randomset.errors import FileFormatError

__all__ = ["is_grey", "is_picture", "pixels_from_pil"]


def pixels_from_pil(image: Any, size: tuple[int, int] | None = None, grey: bool | None = None) -> Tensor:
    """Convert a Pillow image to uint8 (C × H × W), applying its EXIF orientation; resize if `size` is given.

    >>> from PIL import Image
    >>> pixels_from_pil(Image.new("L", (4, 3))).shape
    torch.Size([1, 3, 4])
    """
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        got = "floating point, of unknown range"
        raise FileFormatError("unsupported pixel type", got=got, expected="8 or 16 bits per pixel")
    if image.mode.startswith("I"):  # 16 bits per pixel
        values = np.asarray(image, dtype=np.float32)
        image = Image.fromarray(np.clip(values / 257, 0, 255).round().astype(np.uint8))
    if "transparency" in image.info:  # a palette with alpha; Pillow warns on direct conversion
        image = image.convert("RGBA")
    if grey is None:
        grey = is_grey(image)
    image = image.convert("L" if grey else "RGB")
    if size is not None and (image.height, image.width) != size:
        image = ImageOps.fit(image, (size[1], size[0]), Image.Resampling.BILINEAR)
    array = np.array(image)
    return torch.from_numpy(array[None] if grey else np.ascontiguousarray(array.transpose(2, 0, 1)))


def is_grey(image: Any) -> bool:
    """Return whether a Pillow image has no colours."""
    return image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16")


def is_picture(value: Any) -> bool:
    """Return whether a value is a Pillow image, without importing Pillow."""
    return type(value).__module__.startswith("PIL.")
