"""Pillow images as tensors."""

import numpy as np
import pytest
from PIL import Image

from randomset._core.pixels import pixels_from_pil


@pytest.mark.parametrize("mode", ["1", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_pillow_modes(mode):
    value = 255 if mode == "1" else 128
    picture = Image.new("L", (4, 4), value)
    if mode == "I;16":
        picture = Image.fromarray(np.full((4, 4), 128 * 257, np.uint16))
    else:
        picture = picture.convert(mode)
    found = pixels_from_pil(picture)
    assert found.shape == ((1 if mode in ("1", "LA", "I;16") else 3), 4, 4)
    assert (found.float() - value).abs().max() <= 1
