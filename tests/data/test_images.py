"""Image files: pixels, decoding of many files, and PNG."""

import numpy as np
import pytest
import torch
from PIL import Image

from randomset.backbones.inputs import convert_images
from randomset.data import images, load_inputs, load_source
from randomset.data.images import png_from_image
from randomset.errors import ShapeError
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


def test_large_folders_are_cached(pets, monkeypatch, tmp_path):
    folder, pixels = pets
    (folder / "cat" / "broken.png").write_text("x")
    monkeypatch.setattr(images, "LARGE", 1)
    monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path / "data"))
    first = load_source(folder)
    assert np.array_equal(first.inputs.numpy(), pixels.transpose(0, 3, 1, 2))
    assert len(list((tmp_path / "data" / "decoded").iterdir())) == 2
    monkeypatch.setattr(images, "_fill", lambda *_: pytest.fail("decoded again"))
    again = load_source(folder)
    assert torch.equal(first.inputs, again.inputs)
    assert again.remarks == first.remarks
    assert again.files == first.files
    monkeypatch.undo()
    monkeypatch.setattr(images, "LARGE", 1)
    monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path / "data"))
    changed = write_image(folder / "cat" / "0.png", value=3)
    assert np.array_equal(load_source(folder).inputs[0].numpy(), changed.transpose(2, 0, 1))


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
