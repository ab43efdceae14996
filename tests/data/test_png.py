"""Conversion of images to the shape that a network expects."""

import numpy as np
import pytest
import torch

from randomset.backbones.inputs import convert_images
from randomset.data.png import png_from_image
from randomset.errors import ShapeError

IMAGES = torch.rand(8, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def test_grey_and_back():
    grey, done = convert_images(IMAGES, (1, 12, 12))
    assert done == ["colour converted to grey"]
    assert torch.allclose(grey[:, 0], IMAGES[:, 0] * 0.299 + IMAGES[:, 1] * 0.587 + IMAGES[:, 2] * 0.114)
    colour, done = convert_images(grey, (3, 12, 12))
    assert torch.equal(colour[:, 2], grey[:, 0])


def test_sizes_and_types():
    pixels = (IMAGES * 255).byte()
    small, done = convert_images(pixels, (3, 6, 6))
    assert done == ["resized from 12 × 12 to 6 × 6"]
    assert small.dtype == torch.uint8
    assert (small.float().mean() - pixels.float().mean()).abs() < 2
    same, done = convert_images(pixels, (3, 12, 12))
    assert done == []
    assert torch.equal(same, pixels)


def test_alpha_and_unsupported_channels():
    with_alpha = torch.cat((IMAGES, torch.ones(8, 1, 12, 12)), 1)
    found, done = convert_images(with_alpha, (3, 12, 12))
    assert torch.equal(found, IMAGES)
    assert done == ["alpha dropped"]
    with pytest.raises(ShapeError, match="5 channels"):
        convert_images(torch.zeros(1, 5, 4, 4), (3, 4, 4))


@pytest.mark.parametrize("channels", [1, 3])
def test_png_round_trip(channels):
    import io

    from PIL import Image

    image = torch.arange(channels * 30, dtype=torch.uint8).reshape(channels, 5, 6) * 2
    for given in (image, image / 255):
        array = np.asarray(Image.open(io.BytesIO(png_from_image(given))))
        assert np.array_equal(array if channels == 1 else array.transpose(2, 0, 1), image.squeeze(0).numpy())
    assert Image.open(io.BytesIO(png_from_image(image, largest=3))).size == (3, 3)
