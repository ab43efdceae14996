"""Image folders."""

import numpy as np
import pytest
from PIL import Image

from randomset.data import load_source
from randomset.errors import FileFormatError, LabelError
from tests.data.conftest import write_image


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
    with pytest.raises(LabelError, match="one class only"):
        load_source(tmp_path)
    write_image(tmp_path / "loose.png")
    with pytest.raises(FileFormatError, match=r"loose\.png beside dog/"):
        load_source(tmp_path)
    (tmp_path / "dog" / "a.png").write_text("x")
    (tmp_path / "loose.png").unlink()
    with pytest.raises(FileFormatError, match=r"no image in the folder.*a\.png: not an image"):
        load_source(tmp_path, labelled=False)
