"""Data set objects of torch and Hugging Face, loaded as sources."""

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from randomset.data import load_source
from randomset.errors import RandomSetError
from tests.data.conftest import rng


class Squares(Dataset):
    """A map-style data set of (array, label) pairs."""

    classes = ("even", "odd")

    def __len__(self):
        return 5

    def __getitem__(self, index):
        if index >= 5:
            raise IndexError
        return np.full((1, 2, 2), index, np.float32), index % 2


def test_torch_datasets():
    source = load_source(Squares())
    assert source.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert (source.kind, source.classes) == ("images", ("even", "odd"))
    assert source.labels.tolist() == [0, 1, 0, 1, 0]
    tensors = TensorDataset(torch.eye(4), torch.tensor([0, 1, 2, 0]))
    assert torch.equal(load_source(tensors).inputs, torch.eye(4))
    alone = load_source(TensorDataset(torch.eye(4)), labelled=False)
    assert alone.labels.tolist() == [-1] * 4


def test_inputs_with_different_shapes():
    class Ragged(Squares):
        def __getitem__(self, index):
            return np.zeros(index + 1), 0

    with pytest.raises(RandomSetError, match=r"different shapes.*\(1,\) and \(2,\)"):
        load_source(Ragged())


def test_hugging_face_images():
    pixels = rng.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    features = datasets.Features(
        {"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {"img": [Image.fromarray(one) for one in pixels], "fine_label": [0, 1, 1, 0]}
    table = datasets.Dataset.from_dict(rows, features)
    source = load_source(table)
    assert np.array_equal(source.inputs.numpy(), pixels.transpose(0, 3, 1, 2))
    assert (source.classes, source.labels.tolist()) == (("cat", "dog"), [0, 1, 1, 0])
    splits = datasets.DatasetDict({"test": table})
    assert len(load_source(splits, "test")) == 4
    with pytest.raises(RandomSetError, match="unknown split; got train; expected test"):
        load_source(splits, "train")


def test_hugging_face_texts():
    table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": ["x", "y"], "id": [1, 2]})
    source = load_source(table)
    assert (source.kind, source.inputs, source.classes) == ("text", ["a", "b"], ("x", "y"))
    with pytest.raises(RandomSetError, match="neither images nor texts"):
        load_source(table.remove_columns("text"))
