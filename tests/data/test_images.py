"""Corruptions, conversions, idx files and named sets."""

import gzip
import math
import os
import struct

import numpy as np
import pytest
import torch

from randomset.data import load_inputs, load_source
from randomset.data.catalogue import KNOWN, listing
from randomset.data.conversion import converted, png_from_image
from randomset.data.corruptions import (
    gaussian_blur,
    gaussian_noise,
    lower_contrast,
    occluded,
    rotated,
    rotated_between,
)
from randomset.data.idx import read_idx
from randomset.errors import FileFormatError, RandomSetError, ShapeError

IMAGES = torch.rand(8, 3, 12, 12, generator=torch.Generator().manual_seed(0))


class TestNoise:
    def test_scale_and_range(self):
        middle = torch.full((4, 1, 100, 100), 0.5)
        noisy = gaussian_noise(middle, 0.1, seed=1)
        assert (noisy - middle).std().item() == pytest.approx(0.1, rel=0.02)
        strong = gaussian_noise(IMAGES, 2.0)
        assert (strong.min().item(), strong.max().item()) == (0, 1)
        assert torch.equal(gaussian_noise(IMAGES, 0.3, seed=5), gaussian_noise(IMAGES, 0.3, seed=5))
        assert not torch.equal(gaussian_noise(IMAGES, 0.3, seed=5), gaussian_noise(IMAGES, 0.3, seed=6))

    def test_clipped_after_adding(self):
        """White with noise stays mostly white: half of the noise goes upwards and is cut."""
        assert (gaussian_noise(torch.ones(1, 1, 100, 100), 0.5) == 1).float().mean().item() == pytest.approx(
            0.5, abs=0.02
        )


class TestRotation:
    @pytest.mark.parametrize("size", [12, 13])
    def test_quarter_turns_are_exact(self, size):
        images = torch.rand(3, 2, size, size, generator=torch.Generator().manual_seed(1))
        for turns in range(-4, 5):
            expected = torch.rot90(images, turns, (2, 3))
            assert torch.allclose(rotated(images, 90.0 * turns), expected, atol=1e-4)

    def test_the_centre_is_the_true_one(self):
        """The centre of mass of a blob turns about the middle of the image."""
        images = torch.zeros(1, 1, 41, 41)
        images[0, 0, 18:23, 28:33] = 1  # ten pixels to the right of the middle
        turned = rotated(images, 30.0)[0, 0]
        rows, columns = torch.meshgrid(torch.arange(41.0), torch.arange(41.0), indexing="ij")
        y, x = ((turned * axis).sum() / turned.sum() - 20 for axis in (rows, columns))
        assert (x.item(), -y.item()) == pytest.approx((10 * math.cos(math.pi / 6), 5), abs=0.05)

    def test_an_oblong_image_is_not_sheared(self):
        images = torch.zeros(1, 1, 21, 61)
        images[0, 0, 10, 24:37] = 1
        turned = rotated(images, 90.0)[0, 0]
        assert turned[4:17, 30].mean() > 0.9
        assert turned.sum().item() == pytest.approx(13, abs=0.5)

    def test_angles_of_a_range(self):
        same = rotated_between(IMAGES, 30, 30)
        assert torch.allclose(same, rotated(IMAGES, 30.0), atol=1e-5)
        spread = rotated_between(IMAGES[:1].expand(8, -1, -1, -1), -60, 60, seed=2)
        assert len({tuple(image.flatten().tolist()) for image in spread}) == 8
        with pytest.raises(RandomSetError, match="range of angles"):
            rotated_between(IMAGES, 3, 2)


class TestOthers:
    def test_blur_is_a_gaussian(self):
        dot = torch.zeros(1, 1, 31, 31)
        dot[0, 0, 15, 15] = 1
        blurred = gaussian_blur(dot, 2.0)[0, 0]
        row = blurred[15] / blurred[15].max()
        expected = torch.exp(-((torch.arange(31.0) - 15) ** 2) / 8)
        assert torch.allclose(row[10:21], expected[10:21], atol=1e-3)
        assert blurred.sum().item() == pytest.approx(1, abs=1e-4)

    def test_contrast(self):
        assert torch.allclose(lower_contrast(IMAGES, 1.0), IMAGES)
        flat = lower_contrast(IMAGES, 0.0)
        assert flat.flatten(1).std(1).max() < 1e-6
        assert torch.allclose(lower_contrast(IMAGES, 0.3).mean((1, 2, 3)), IMAGES.mean((1, 2, 3)), atol=1e-5)

    def test_occlusion(self):
        covered = occluded(torch.ones(200, 2, 10, 20), 0.5, seed=1) == 0
        assert covered.sum((1, 2, 3)).tolist() == [2 * 5 * 10] * 200
        assert covered.any(0).all()  # every place is covered in some image

    def test_mistakes(self):
        with pytest.raises(ShapeError, match="Divide bytes"):
            gaussian_noise(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), 0.1)
        for call in (
            lambda: gaussian_noise(IMAGES, -1),
            lambda: gaussian_blur(IMAGES, 0),
            lambda: lower_contrast(IMAGES, 2),
            lambda: occluded(IMAGES, 1.5),
        ):
            with pytest.raises(RandomSetError):
                call()


class TestConversion:
    def test_grey_and_back(self):
        grey, done = converted(IMAGES, (1, 12, 12))
        assert done == ["colour converted to grey"]
        assert torch.allclose(grey[:, 0], IMAGES[:, 0] * 0.299 + IMAGES[:, 1] * 0.587 + IMAGES[:, 2] * 0.114)
        colour, done = converted(grey, (3, 12, 12))
        assert torch.equal(colour[:, 2], grey[:, 0])

    def test_sizes_and_types(self):
        pixels = (IMAGES * 255).byte()
        small, done = converted(pixels, (3, 6, 6))
        assert done == ["resized from 12 × 12 to 6 × 6"]
        assert small.dtype == torch.uint8
        assert (small.float().mean() - pixels.float().mean()).abs() < 2
        same, done = converted(pixels, (3, 12, 12))
        assert done == []
        assert torch.equal(same, pixels)

    def test_alpha_and_what_cannot_be(self):
        with_alpha = torch.cat((IMAGES, torch.ones(8, 1, 12, 12)), 1)
        found, done = converted(with_alpha, (3, 12, 12))
        assert torch.equal(found, IMAGES)
        assert done == ["alpha dropped"]
        with pytest.raises(ShapeError, match="5 channels"):
            converted(torch.zeros(1, 5, 4, 4), (3, 4, 4))


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


class TestNamedSets:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path))
        raw = tmp_path / "MNIST" / "raw"
        images = np.random.default_rng(0).integers(0, 256, (20, 28, 28))
        write_idx(raw / "t10k-images-idx3-ubyte.gz", images)
        write_idx(raw / "t10k-labels-idx1-ubyte.gz", np.arange(20) % 10)
        classes = np.array([f"class {i}" for i in range(10)])
        pixels = np.zeros((10, 32, 32, 3), dtype=np.uint8)
        np.savez(tmp_path / "cifar10-train.npz", images=pixels, labels=np.arange(10), classes=classes)
        return tmp_path

    def test_idx_files(self, folder):
        source = load_source("mnist", "test")
        assert source.inputs.shape == (20, 1, 28, 28)
        assert source.inputs.dtype == torch.uint8
        assert source.labels.tolist() == [*range(10)] * 2
        assert torch.equal(load_inputs("mnist"), source.inputs)

    def test_archives(self, folder):
        source = load_source("cifar10")
        assert source.inputs.shape == (10, 3, 32, 32)
        assert source.classes[3] == "class 3"

    def test_what_is_listed(self, folder):
        rows = {name: present for name, _, present in listing()}
        assert rows["digits"] == "built in"
        assert (rows["mnist"], rows["cifar10"], rows["svhn"]) == ("test", "train", "not found")
        assert set(rows) == {"digits", *KNOWN}

    def test_a_missing_file_is_named(self, folder, monkeypatch):
        with pytest.raises(FileFormatError, match=r"train-images-idx3-ubyte\.gz"):
            load_source("mnist", "train")
        with pytest.raises(FileFormatError, match=r"svhn-test\.npz"):
            load_source("svhn", "test")
        with pytest.raises(RandomSetError, match="train or test"):
            load_source("cifar10", "dev")
        monkeypatch.delenv("RANDOMSET_DATA")
        with pytest.raises(FileFormatError, match="randomset data --download kmnist"):
            load_source("kmnist", "test")

    def test_damaged_idx_files(self, folder):
        path = folder / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
        whole = gzip.decompress(path.read_bytes())
        for content in (whole[:-1], whole[:7], b"", b"hello", whole + b"x"):
            path.write_bytes(gzip.compress(content))
            with pytest.raises(FileFormatError, match=r"t10k-images"):
                read_idx(path)
        path.write_bytes(b"not compressed")
        with pytest.raises(FileFormatError, match=r"t10k-images"):
            read_idx(path)


@pytest.mark.slow
@pytest.mark.skipif("RANDOMSET_DATA" not in os.environ, reason="RANDOMSET_DATA names no folder")
def test_the_real_sets_are_whole():
    shapes = {
        ("mnist", "train"): (60000, 1, 28, 28),
        ("fashion-mnist", "test"): (10000, 1, 28, 28),
        ("kmnist", "test"): (10000, 1, 28, 28),
        ("cifar10", "test"): (10000, 3, 32, 32),
        ("cifar100", "test"): (10000, 3, 32, 32),
        ("svhn", "test"): (10000, 3, 32, 32),
        ("intel", "test"): (3000, 3, 64, 64),
        ("imagenette", "test"): (3925, 3, 64, 64),
    }
    for (name, split), shape in shapes.items():
        source = load_source(name, split)
        assert tuple(source.inputs.shape) == shape
        assert source.labels.unique().tolist() == list(range(len(source.classes)))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_and_back(channels):
    import io

    from PIL import Image

    image = torch.arange(channels * 30, dtype=torch.uint8).reshape(channels, 5, 6) * 2
    for given in (image, image / 255):
        array = np.asarray(Image.open(io.BytesIO(png_from_image(given))))
        assert np.array_equal(array if channels == 1 else array.transpose(2, 0, 1), image.squeeze(0).numpy())
    assert Image.open(io.BytesIO(png_from_image(image, largest=3))).size == (3, 3)
