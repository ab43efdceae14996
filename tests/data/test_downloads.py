"""Downloads of named data sets."""

import csv

import datasets
import numpy as np
import pytest
from PIL import Image

from randomset.data import load_source
from randomset.data.downloads import download
from randomset.errors import FileFormatError, RandomSetError
from tests.data.conftest import rng


class TestDownload:
    """Uses Hugging Face `datasets`, with `load_dataset` replaced."""

    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path))
        return tmp_path

    def hub(self, monkeypatch, table):
        asked = []

        def load(address, configuration=None, split=None, verification_mode=None):
            assert verification_mode == "all_checks"
            asked.append((address, configuration, split))
            return table

        monkeypatch.setattr(datasets, "load_dataset", load)
        return asked

    def images(self, image="image", label="label", names=("a", "b"), sizes=((4, 4), (4, 4), (4, 4))):
        features = datasets.Features({image: datasets.Image(), label: datasets.ClassLabel(names=list(names))})
        pictures = [Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]
        return datasets.Dataset.from_dict({image: pictures, label: [0, 1, 1]}, features)

    def test_images_of_one_size_become_an_archive(self, folder, monkeypatch, caplog):
        asked = self.hub(monkeypatch, self.images("img"))
        caplog.set_level("INFO", logger="randomset")
        written = download("cifar10")
        assert asked == [("uoft-cs/cifar10", None, "train"), ("uoft-cs/cifar10", None, "test")]
        assert [path.name for path in written] == ["cifar10-train.npz", "cifar10-test.npz"]
        assert load_source("cifar10").classes == ("a", "b")
        assert download("cifar10") == []
        assert caplog.messages[-1] == "cifar10 test is already present."

    def test_images_of_many_sizes_stay_files(self, folder, monkeypatch):
        table = self.images(names=("wolf/dog", "ant"), sizes=((4, 4), (5, 6), (9, 3)))
        asked = self.hub(monkeypatch, table)
        source = load_source("imagenet-o", labelled=False, download=True)
        assert asked == [("cais/imagenet-o", None, "test")]
        assert source.inputs.shape == (3, 3, 64, 64)
        names = sorted(path.name for path in (folder / "imagenet-o" / "test").iterdir())
        assert names == ["ant", "classes.json", "wolf-dog"]
        labelled = load_source("imagenet-o")
        assert labelled.classes == ("wolf/dog", "ant")  # original order and names
        assert labelled.labels.tolist() == [0, 1, 1]

    def test_texts_become_a_table(self, folder, monkeypatch):
        rows = {"text": ["x, y", "z"], "label": [0, 1], "label_text": ["sport", "tech"]}
        part = datasets.Dataset.from_dict(rows)
        self.hub(monkeypatch, datasets.DatasetDict({"train": part, "test": part}))
        download("bbc")
        source = load_source("bbc")
        assert (source.inputs, source.classes) == (["x, y", "z"], ("sport", "tech"))
        assert source.remarks == ("2 duplicate texts are left out",)
        with (folder / "bbc-text.csv").open() as file:
            assert len(list(csv.reader(file))) == 5

    def test_no_connection_leaves_nothing_behind(self, folder, monkeypatch):
        def fail(*_, **__):
            raise ConnectionError("no route to the hub")

        monkeypatch.setattr(datasets, "load_dataset", fail)
        with pytest.raises(FileFormatError, match=r"cannot download mnist.*no route to the hub"):
            download("mnist")
        with pytest.raises(FileFormatError, match=r"tweet_emotions\.csv"):
            download("emotion")
        with pytest.raises(RandomSetError, match="unknown data set"):
            download("nothing")
        assert list(folder.iterdir()) == []
