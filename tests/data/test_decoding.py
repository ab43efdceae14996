"""The cache of decoded images."""

import numpy as np
import pytest
import torch

from randomset.data import decoding, load_source
from tests.data.conftest import write_image


def test_large_folders_are_cached(pets, monkeypatch, tmp_path):
    folder, pixels = pets
    (folder / "cat" / "broken.png").write_text("x")
    monkeypatch.setattr(decoding, "LARGE", 1)
    monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path / "data"))
    first = load_source(folder)
    assert np.array_equal(first.inputs.numpy(), pixels.transpose(0, 3, 1, 2))
    assert len(list((tmp_path / "data" / "decoded").iterdir())) == 2
    monkeypatch.setattr(decoding, "_fill", lambda *_: pytest.fail("decoded again"))
    again = load_source(folder)
    assert torch.equal(first.inputs, again.inputs)
    assert again.remarks == first.remarks
    assert again.files == first.files
    monkeypatch.undo()
    monkeypatch.setattr(decoding, "LARGE", 1)
    monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path / "data"))
    changed = write_image(folder / "cat" / "0.png", value=3)
    assert np.array_equal(load_source(folder).inputs[0].numpy(), changed.transpose(2, 0, 1))
