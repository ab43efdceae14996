"""Arrays in .npz and idx files."""

import gzip

import numpy as np
import pytest
import torch

from randomset.data import arrays, load_inputs, load_source
from randomset.data.arrays import read_idx
from randomset.errors import FileFormatError, RandomSetError
from tests.data.conftest import rng, saved


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 8, 8), (6, 1, 8, 8)),
        ((6, 9, 8, 3), (6, 3, 9, 8)),
        ((6, 3, 9, 8), (6, 3, 9, 8)),
        ((6, 28, 28, 1), (6, 1, 28, 28)),
    ],
)
def test_image_layouts(file, shape, expected):
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    source = load_source(saved(file, images=images, labels=np.arange(6) % 2))
    assert source.inputs.shape == expected
    assert source.inputs.dtype == torch.uint8
    assert source.inputs.sum() == images.sum()
    if len(shape) == 4 and shape != expected:
        assert source.inputs[1, 2 % expected[1], 3, 4] == images[1, 3, 4, 2 % expected[1]]


def test_integers_within_a_byte_become_uint8(file):
    images = np.arange(32).reshape(2, 4, 4)
    assert load_inputs(saved(file, images=images)).dtype == torch.uint8
    assert load_inputs(saved(file, images=images * 100)).dtype == torch.float32


ONES = np.ones((4, 3))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": ONES}, "missing array 'labels'"),
        ({"labels": np.arange(4)}, "neither"),
        ({"features": ONES, "images": ONES, "labels": np.arange(4)}, "both"),
        ({"features": ONES, "labels": np.arange(3)}, "do not match"),
        ({"features": ONES * np.nan, "labels": np.arange(4)}, "NaN or infinity in sample 0"),
        ({"features": np.array(["a", "b"]), "labels": np.arange(2)}, "non-empty numeric array"),
        ({"features": np.ones((0, 3)), "labels": np.arange(0)}, "non-empty numeric array"),
        ({"images": np.ones((4, 3, 3, 3, 3)), "labels": np.arange(4)}, "invalid image shape"),
        ({"features": ONES, "labels": np.zeros((4, 2))}, "empty set in row 0"),
        ({"features": ONES, "labels": np.full((4, 2), 2)}, "row of 0 and 1"),
        ({"features": ONES, "labels": np.full((4, 2), "a")}, "row of 0 and 1"),
        ({"features": ONES, "labels": np.ones((0, 2))}, "row of 0 and 1"),
        ({"features": ONES, "labels": np.ones((4, 2)), "classes": np.array(["a"])}, "1 names for 2"),
        ({"features": ONES, "labels": np.zeros(4, int)}, "only one class"),
        ({"features": np.array([{}, {}]), "labels": np.arange(2)}, "Python objects"),
    ],
)
def test_invalid_arrays(file, arrays, message):
    with pytest.raises(RandomSetError, match=message):
        load_source(saved(file, **arrays))


def test_missing_and_invalid_files(file):
    with pytest.raises(RandomSetError, match="no such data"):
        load_source(file)
    file.write_text("hello")
    with pytest.raises(RandomSetError, match=r"not an \.npz file"):
        load_source(file)
    file.write_bytes(b"")
    with pytest.raises(RandomSetError, match="cannot read"):
        load_inputs(file)


class TestLargeArrays:
    @pytest.mark.parametrize("dtype", [np.uint8, np.float32])
    def test_memory_mapping(self, tmp_path, monkeypatch, dtype):
        images = rng.integers(0, 256, (6, 4, 5, 3)).astype(dtype)
        np.savez(tmp_path / "a.npz", labels=np.arange(6) % 2, images=images)
        expected = load_source(tmp_path / "a.npz").inputs
        monkeypatch.setattr(arrays, "LARGE", images.nbytes)
        found = arrays.read_arrays(tmp_path / "a.npz", ("images", "labels"))
        assert isinstance(found["images"], np.memmap)
        assert not isinstance(found["labels"], np.memmap)
        source = load_source(tmp_path / "a.npz")
        assert torch.equal(source.inputs, expected)
        assert source.inputs.dtype == expected.dtype
        np.savez_compressed(tmp_path / "b.npz", labels=np.arange(6) % 2, images=images)
        assert torch.equal(load_source(tmp_path / "b.npz").inputs, expected)

    def test_non_finite_value_is_located(self, tmp_path):
        features = np.ones((50, 2), np.float32)
        features[37, 1] = np.inf
        np.savez(tmp_path / "a.npz", features=features, labels=np.arange(50) % 2)
        with pytest.raises(RandomSetError, match="sample 37"):
            load_source(tmp_path / "a.npz")


def test_images_and_labels(data_folder):
    source = load_source("mnist", "test")
    assert source.inputs.shape == (20, 1, 28, 28)
    assert source.inputs.dtype == torch.uint8
    assert source.labels.tolist() == [*range(10)] * 2
    assert torch.equal(load_inputs("mnist"), source.inputs)


def test_damaged_files(data_folder):
    path = data_folder / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
    whole = gzip.decompress(path.read_bytes())
    for content in (whole[:-1], whole[:7], b"", b"hello", whole + b"x"):
        path.write_bytes(gzip.compress(content))
        with pytest.raises(FileFormatError, match=r"t10k-images"):
            read_idx(path)
    path.write_bytes(b"not compressed")
    with pytest.raises(FileFormatError, match=r"t10k-images"):
        read_idx(path)
