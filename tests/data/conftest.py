"""Data and fixtures shared by the tests of data."""

import gzip
import struct

import numpy as np
import pytest
from PIL import Image

rng = np.random.default_rng(0)


def write_image(path, shape=(6, 8, 3), value=None):
    """Write an image of random or constant pixels, and return the pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8) if value is None else np.full(shape, value, np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture
def pets(tmp_path):
    """A folder with two classes and five images of one size, and their pixels."""
    pixels = [write_image(tmp_path / "pets" / "cat" / f"{i}.png") for i in range(3)]
    pixels += [write_image(tmp_path / "pets" / "dog" / "deep" / f"{i}.png") for i in range(2)]
    return tmp_path / "pets", np.stack(pixels)


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data.npz"


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """A data folder with the test split of MNIST and the training split of CIFAR-10."""
    monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path))
    raw = tmp_path / "MNIST" / "raw"
    images = np.random.default_rng(0).integers(0, 256, (20, 28, 28))
    write_idx(raw / "t10k-images-idx3-ubyte.gz", images)
    write_idx(raw / "t10k-labels-idx1-ubyte.gz", np.arange(20) % 10)
    classes = np.array([f"class {i}" for i in range(10)])
    pixels = np.zeros((10, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "cifar10-train.npz", images=pixels, labels=np.arange(10), classes=classes)
    return tmp_path
