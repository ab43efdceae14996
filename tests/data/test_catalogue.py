"""Named data sets: files, listing, and errors."""

import os

import pytest

from randomset.data import load_source
from randomset.data.catalogue import KNOWN, listing
from randomset.errors import FileFormatError, RandomSetError


def test_npz_files(data_folder):
    source = load_source("cifar10")
    assert source.inputs.shape == (10, 3, 32, 32)
    assert source.classes[3] == "class 3"


def test_listing(data_folder):
    rows = {name: present for name, _, present in listing()}
    assert rows["digits"] == "built in"
    assert (rows["mnist"], rows["cifar10"], rows["svhn"]) == ("test", "train", "not found")
    assert set(rows) == {"digits", *KNOWN}


def test_missing_files_are_named(data_folder, monkeypatch):
    with pytest.raises(FileFormatError, match=r"train-images-idx3-ubyte\.gz"):
        load_source("mnist", "train")
    with pytest.raises(FileFormatError, match=r"svhn-test\.npz"):
        load_source("svhn", "test")
    with pytest.raises(RandomSetError, match="train or test"):
        load_source("cifar10", "dev")
    monkeypatch.delenv("RANDOMSET_DATA")
    with pytest.raises(FileFormatError, match="randomset data --download kmnist"):
        load_source("kmnist", "test")


def test_every_entry_has_an_origin():
    assert set(KNOWN) == {
        *("mnist", "fashion-mnist", "kmnist", "cifar10", "cifar100", "svhn", "intel"),
        *("imagenet", "imagenet-o", "imagenette", "bbc", "emotion"),
    }
    for known in KNOWN.values():
        assert known.hub or known.torchvision or known.advice


@pytest.mark.slow
@pytest.mark.skipif("RANDOMSET_DATA" not in os.environ, reason="RANDOMSET_DATA names no data_folder")
def test_published_data_sets_are_complete():
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
