"""Image files: pixels, decoding of many files, and PNG."""

import numpy as np
import pytest
import torch
from PIL import Image

from randomset.backbones.inputs import convert_images
from randomset.data import images, load_inputs, load_source
from randomset.data.images import png_from_image
from randomset.errors import FileFormatError, LabelError, ShapeError
from tests.data.conftest import rng, write_image


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


def test_subfolders_are_classes(pets):
    folder, pixels = pets
    source = load_source(folder)
    assert (source.name, source.kind, source.classes) == ("pets", "images", ("cat", "dog"))
    assert source.labels.tolist() == [0, 0, 0, 1, 1]
    assert np.array_equal(source.inputs.numpy(), pixels.transpose(0, 3, 1, 2))
    assert source.remarks == ()
    assert source.files[4].endswith("dog/deep/1.png")


def test_flat_folders_have_no_labels(tmp_path):
    write_image(tmp_path / "a.png", (5, 4))
    write_image(tmp_path / "b.PNG", (5, 4))
    (tmp_path / "notes.txt").write_text("no image")
    source = load_source(tmp_path, labelled=False)
    assert source.inputs.shape == (2, 1, 5, 4)  # grey stays grey
    assert source.labels.tolist() == [-1, -1]
    with pytest.raises(LabelError, match="no labels"):
        load_source(tmp_path)


def test_hidden_folders_are_not_classes(tmp_path):
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            write_image(tmp_path / split / name / "1.png")
    for stray in (".ipynb_checkpoints", "__MACOSX"):
        (tmp_path / stray).mkdir()
    assert load_source(tmp_path).classes == ("a", "b")
    (tmp_path / "train" / "__MACOSX").mkdir()
    write_image(tmp_path / "train" / "__MACOSX" / "1.png")
    assert load_source(tmp_path).classes == ("a", "b")


def test_splits_are_subfolders(tmp_path):
    for split, count in (("train", 3), ("val", 1)):
        for kind in ("cat", "dog"):
            for i in range(count):
                write_image(tmp_path / split / kind / f"{i}.png")
    assert len(load_source(tmp_path)) == 6
    assert len(load_source(tmp_path, "test")) == 2
    (tmp_path / "train").rename(tmp_path / "training")
    (tmp_path / "val").rename(tmp_path / "other")
    assert load_source(tmp_path).classes == ("other", "training")  # classes, since one name is not a split


def test_different_sizes_are_resized_with_a_remark(tmp_path):
    wide = np.zeros((10, 20, 3), np.uint8)
    wide[:, 5:15] = 200  # a centre crop keeps the bright middle
    (tmp_path / "a").mkdir(parents=True)
    Image.fromarray(wide).save(tmp_path / "a" / "wide.png")
    write_image(tmp_path / "b" / "small.png", (5, 5, 3), 9)
    source = load_source(tmp_path)
    assert source.inputs.shape == (2, 3, 64, 64)
    assert "2 sizes scaled and centre-cropped to 64 × 64" in source.remarks[0]
    assert source.inputs[0].float().mean() > 190
    assert (source.inputs[1] == 9).all()
    assert load_source(tmp_path, size=(7, 9)).inputs.shape == (2, 3, 7, 9)


def test_class_order_from_a_file(pets):
    folder, pixels = pets
    (folder / "classes.json").write_text('{"dog": "dog/wolf", "cat": "cat"}')
    source = load_source(folder)
    assert source.classes == ("dog/wolf", "cat")
    assert source.labels.tolist() == [0, 0, 1, 1, 1]
    assert np.array_equal(source.inputs[0].numpy(), pixels[3].transpose(2, 0, 1))
    for content in ("[]", "{", '{"dog": 3}', '{"dog": "dog"}'):
        (folder / "classes.json").write_text(content)
        with pytest.raises(FileFormatError, match=r"classes\.json"):
            load_source(folder)


def test_broken_images_are_skipped_with_a_remark(pets):
    folder, pixels = pets
    whole = (folder / "cat" / "1.png").read_bytes()
    (folder / "cat" / "1.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "x.jpg").write_text("hello")
    source = load_source(folder)
    assert source.labels.tolist() == [0, 0, 1, 1]
    kept = pixels[[0, 2, 3, 4]].transpose(0, 3, 1, 2)
    assert np.array_equal(source.inputs.numpy(), kept)
    assert [name[-9:] for name in source.files] == ["cat/0.png", "cat/2.png", "eep/0.png", "eep/1.png"]
    (remark,) = source.remarks
    assert remark.startswith("2 of 6 images could not be read")
    assert "1.png" in remark
    assert "x.jpg (not an image)" in remark
    with pytest.raises(FileFormatError, match=r"1\.png"):
        load_source(folder, strict=True)


def test_invalid_folders(tmp_path):
    with pytest.raises(FileFormatError, match="no images"):
        load_source(tmp_path)
    (tmp_path / "cat").mkdir()
    write_image(tmp_path / "dog" / "a.png")
    with pytest.raises(FileFormatError, match=r"no images.*cat"):
        load_source(tmp_path)
    (tmp_path / "cat").rmdir()
    with pytest.raises(LabelError, match="only one class"):
        load_source(tmp_path)
    write_image(tmp_path / "loose.png")
    with pytest.raises(FileFormatError, match=r"loose\.png beside dog/"):
        load_source(tmp_path)
    (tmp_path / "dog" / "a.png").write_text("x")
    (tmp_path / "loose.png").unlink()
    with pytest.raises(FileFormatError, match=r"no image in the folder.*a\.png: not an image"):
        load_source(tmp_path, labelled=False)
