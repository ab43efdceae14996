"""Batches as data loaders yield them, and outputs as backbones return them."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from randomset._core.batches import (
    as_floating,
    as_tensor,
    call_with,
    cut_into_batches,
    evaluating,
    feature_tensor,
    flat_features,
    inputs_alone,
    moved,
    on_terminal,
    progress_bar,
    split_batch,
    unweighted,
    usual_workers,
)
from randomset.errors import RandomSetError, ShapeError

X, Y = torch.rand(5, 3), torch.arange(5)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self):
        return iter(X)


@pytest.mark.parametrize(
    "batch",
    [(X, Y), [X, Y], {"x": X, "labels": Y}, {"x": X, "label": Y}],
    ids=["tuple", "list", "labels", "label"],
)
def test_inputs_and_labels(batch):
    inputs, labels = split_batch(batch)
    assert labels is Y
    assert (inputs["x"] if isinstance(inputs, dict) else inputs) is X
    assert inputs_alone(batch) == inputs if isinstance(inputs, dict) else inputs_alone(batch) is inputs


def test_batches_without_labels():
    for batch in (X, (X,)):
        assert split_batch(batch) == (X, None)


def test_arrays_that_cannot_be_written():
    fixed = X.numpy().copy()
    fixed.flags.writeable = False
    for part in (fixed, pandas.DataFrame(fixed)):
        assert torch.equal(as_tensor(part), X)
        (batch,) = cut_into_batches((part, Y), 5)[0]
        assert torch.equal(batch[0], X)
    assert as_tensor(X) is X


def test_weights_follow_labels():
    assert inputs_alone((X, Y, Y)) is X
    assert unweighted([X, Y, Y]) == (X, Y)
    with pytest.raises(RandomSetError, match="too many parts; got 3 parts"):
        split_batch((X, Y, Y))


class Subtract(nn.Module):
    def forward(self, a, b):
        return a - b


def test_models_get_mappings_by_name():
    assert call_with(Subtract(), {"b": 1, "a": 3}) == 2
    assert call_with(nn.Identity(), X) is X


class Pictures(Dataset[Any]):
    def __init__(self, pictures):
        self.pictures = pictures

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, place):
        return self.pictures[place], place


@pytest.mark.parametrize("inputs", [X, X.numpy()], ids=["tensor", "array"])
def test_tensors_and_arrays_are_split(inputs):
    batches, count, _ = cut_into_batches(inputs, 2)
    assert count == 3
    assert torch.equal(torch.cat(list(batches)), X)


def test_number_of_batches():
    assert cut_into_batches({"x": X}, 2)[1] == 1
    assert cut_into_batches(TensorDataset(X), 2)[1] == 3
    assert cut_into_batches(DataLoader(Stream(), batch_size=2), 2)[1] is None
    assert cut_into_batches(iter([X]), 2)[1] is None


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (3, "unsupported type of inputs; got int"),
        (torch.tensor(1.0), r"no inputs to predict; got shape \(\)"),
        (torch.ones(0, 2), r"no inputs to predict; got shape \(0, 2\)"),
        (np.array(["a"]), "must be numbers"),
    ],
)
def test_unsupported_inputs(inputs, message):
    with pytest.raises(ShapeError, match=message):
        cut_into_batches(inputs, 2)


def test_labels_are_cut_with_the_inputs():
    named = {"x": X, "mask": X > 0.5}
    for inputs in (X, X.numpy(), named):
        batches, _, samples = cut_into_batches((inputs, Y), 2)
        assert samples == 5
        assert torch.equal(torch.cat([labels for _, labels in batches]), Y)
        assert [len(labels) for _, labels in batches] == [2, 2, 1]
    first, labels = next(iter(cut_into_batches((named, Y), 2)[0]))
    assert torch.equal(first["mask"], named["mask"][:2])
    assert torch.equal(labels, Y[:2])
    with pytest.raises(ShapeError, match="labels of test have different lengths, or are empty; got 5 and 4"):
        cut_into_batches((X, Y[:4]), 2, name="test")


def test_batches_are_not_cut_again():
    for batches in ([(X, Y), (X, Y)], ((X, Y), (X, Y))):
        assert cut_into_batches(batches, 2) == (batches, 2, None)


def test_data_sets_of_pictures():
    picture = Image.fromarray(np.full((2, 3), 255, np.uint8))
    batches, count, samples = cut_into_batches(Pictures([picture, picture.resize((3, 2))]), 2)
    assert (count, samples) == (1, 2)
    assert torch.equal(next(iter(batches))[0], torch.ones(2, 1, 2, 3))
    with pytest.raises(ShapeError, match="cannot collate inputs of different shapes"):
        next(iter(cut_into_batches(Pictures([picture, picture.rotate(90, expand=True)]), 2)[0]))


def test_every_tensor_moves():
    batch = moved({"x": X, "more": [X, ("name", X)]}, torch.device("meta"))
    assert batch["x"].is_meta
    assert batch["more"][1] == ["name", batch["more"][1][1]]
    assert batch["more"][1][1].is_meta


def test_only_floats_are_converted():
    inputs = as_floating({"x": X.numpy(), "tokens": Y, "text": "a"}, torch.float64)
    assert inputs["x"].dtype == torch.float64
    assert inputs["tokens"] is Y
    assert inputs["text"] == "a"


@pytest.mark.parametrize(
    "output",
    [X, (X, Y), SimpleNamespace(logits=X), SimpleNamespace(pooler_output=X, last_hidden_state=None)],
    ids=["tensor", "tuple", "logits", "pooler"],
)
def test_features_in_outputs(output):
    assert feature_tensor(output) is X


def test_outputs_without_features():
    with pytest.raises(RandomSetError, match="does not return features; got dict"):
        feature_tensor({})


def test_features_are_averaged_over_positions():
    maps = torch.rand(2, 3, 4, 5)
    torch.testing.assert_close(flat_features(maps, channels_first=True), maps.mean((2, 3)))
    torch.testing.assert_close(flat_features(maps, channels_first=False), maps.mean((1, 2)))
    assert flat_features(Y, channels_first=True).shape == (5, 1)


def test_streams_have_no_workers():
    assert usual_workers(Stream()) == 0


def test_modes_are_restored():
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model] == [True, False]


def test_modes_of_parts_are_restored():
    model = nn.Sequential(nn.Sequential(nn.Dropout()), nn.Dropout()).eval()
    model[0].train()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [False, True, True, False]


@pytest.mark.parametrize("total", [3, None])
def test_shown_bar_goes_to_the_error_stream(capsys, total, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("counting", total, shown=True) as advance:
        for _ in range(3):
            advance(1)
    out, err = capsys.readouterr()
    assert not out
    assert "counting" in err


@pytest.mark.parametrize("shown", [False, None])
def test_hidden_bar_writes_nothing(capsys, shown):
    assert not on_terminal()
    with progress_bar("counting", 3, shown=shown) as advance:
        advance(1)
    assert capsys.readouterr() == ("", "")


def test_hidden_bar_does_not_import_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with progress_bar("counting", 3, shown=False) as advance:
        advance(1)
