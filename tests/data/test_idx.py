"""The idx file format."""

import gzip

import pytest
import torch

from randomset.data import load_inputs, load_source
from randomset.data.idx import read_idx
from randomset.errors import FileFormatError


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
