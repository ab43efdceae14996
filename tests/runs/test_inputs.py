"""Sources in the form that a network takes, and what is rejected."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from randomset.data.sources import Source
from randomset.errors import FileFormatError, ShapeError
from randomset.models import Softmax
from randomset.runs import NetworkInputs
from randomset.runs.inputs import resolved


def model(**notes):
    """A model whose notes say what its inputs are."""
    found = Softmax(nn.Linear(2, 3), 2)
    found.notes = {"config": {"source": "digits"}, "classes": ["a", "b"], "seconds": 1.0, **notes}
    return found


def images(*shape, scale=1.0):
    tensor = torch.linspace(0, scale, int(np.prod(shape))).reshape(shape)
    return Source("pictures", "images", tensor, torch.zeros(len(tensor)).long(), ("a", "b"))


def loader(folder, **notes):
    return NetworkInputs(model(**notes), folder, strict=False)


class TestFitting:
    def test_images_are_converted_with_a_remark(self, tmp_path):
        load = loader(tmp_path, input_shape=[1, 8, 8], largest_input=1.0)
        fitted = load.fitting(images(2, 3, 16, 16))
        assert tuple(fitted.inputs.shape) == (2, 1, 8, 8)
        assert fitted.remarks == ("colour converted to grey", "resized from 16 × 16 to 8 × 8")
        assert load.fitting(images(2, 1, 8, 8)).remarks == ()

    def test_features_of_another_width(self, tmp_path):
        source = Source("table", "features", torch.zeros(2, 4), torch.zeros(2).long(), ("a",))
        with pytest.raises(ShapeError, match=r"got table of shape \(2, 4\); expected n × 5 numbers"):
            loader(tmp_path, input_shape=[5]).fitting(source)

    @pytest.mark.parametrize(("largest", "scale"), [(1.0, 255.0), (0.1, 3.0)])
    def test_another_scale(self, tmp_path, largest, scale):
        load = loader(tmp_path, input_shape=[1, 4, 4], largest_input=largest)
        with pytest.raises(ShapeError, match=f"on a different scale than in training; .*up to {scale:g}"):
            load.fitting(images(2, 1, 4, 4, scale=scale))

    def test_texts_and_images(self, tmp_path):
        texts = Source("letters", "text", ["a", "b"], torch.zeros(2).long(), ("a",))
        with pytest.raises(ShapeError, match="the network does not take texts; got letters with text"):
            loader(tmp_path, input_shape=[4]).fitting(texts)
        with pytest.raises(ShapeError, match="the network takes texts; got pictures with images"):
            loader(tmp_path, input_shape=[4], tokens=4).fitting(images(2, 1, 4, 4))


class TestNotes:
    def test_unfinished_training(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(FileFormatError, match=r"the training of this run is not finished; .*--resume"):
            loader(tmp_path, config=None)

    @pytest.mark.parametrize(
        "notes",
        [
            {"config": {"source": 3}},
            {"input_shape": [0, 2]},
            {"input_shape": "wide"},
            {"tokens": -1},
            {"columns": [1]},
            {"classes": None},
            {"seconds": "long"},
        ],
        ids=json.dumps,
    )
    def test_damaged_notes(self, tmp_path, notes):
        (name,) = notes
        with pytest.raises(FileFormatError, match=rf"notes on its \w+ are damaged; got {name}"):
            loader(tmp_path, **notes)


def test_paths_become_absolute_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    assert resolved("photos") == str(tmp_path / "photos")
    assert [resolved(name) for name in ("", "digits", "mnist", "nowhere")] == [
        "",
        "digits",
        "mnist",
        "nowhere",
    ]
