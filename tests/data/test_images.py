"""Image files: Pillow modes, transparency and orientation."""

import numpy as np
import pytest
from PIL import Image

from randomset.data import images, load_inputs, load_source
from tests.data.conftest import rng, write_image


@pytest.mark.parametrize("mode", ["1", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_pillow_modes(tmp_path, mode):
    value = 255 if mode == "1" else 128
    picture = Image.new("L", (4, 4), value)
    if mode == "I;16":
        picture = Image.fromarray(np.full((4, 4), 128 * 257, np.uint16))
    else:
        picture = picture.convert(mode)
    found = images.pixels_from_pil(picture)
    assert found.shape == ((1 if mode in ("1", "LA", "I;16") else 3), 4, 4)
    assert (found.float() - value).abs().max() <= 1


def test_palette_with_transparency(tmp_path):
    colours = Image.fromarray(np.full((4, 4, 3), (200, 0, 0), np.uint8)).quantize(4)
    colours.info["transparency"] = b"\x00\x80\xff\xff"
    colours.save(tmp_path / "1.png", transparency=b"\x00\x80\xff\xff")
    found = load_source(tmp_path, labelled=False)
    assert found.remarks == ()
    assert found.inputs[0, :, 0, 0].tolist() == [200, 0, 0]


def test_floating_point_pixels_are_rejected(tmp_path):
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "a.tiff")
    write_image(tmp_path / "b.png", (4, 4))
    source = load_source(tmp_path, labelled=False)
    assert len(source) == 1
    assert "a.tiff (unsupported pixel type" in source.remarks[0]


def test_exif_orientation_is_applied(tmp_path):
    pixels = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 6  # camera rotated by 90°
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=turned)
    found = load_inputs(tmp_path)
    assert np.array_equal(found[0].numpy().transpose(1, 2, 0), np.rot90(pixels, -1))
