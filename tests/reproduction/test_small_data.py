import csv
import json

import numpy as np
import pytest

from randomset.data.sources import load_source
from reproduction import small_data


def test_changed_digits_keep_pixels_and_count(tmp_path):
    unknown = small_data.changed_digits(tmp_path, {"a": "scrambled", "b": "turned", "c": "mirrored"})[
        "unknown"
    ]
    images = load_source("digits").inputs.numpy()
    changed = {name: np.load(path)["images"] for name, path in unknown.items()}
    for each in changed.values():
        assert each.shape == images.shape
        assert not np.array_equal(each, images)
        np.testing.assert_array_equal(
            np.sort(each.reshape(len(each), -1)), np.sort(images.reshape(len(images), -1))
        )
    np.testing.assert_array_equal(changed["b"], np.rot90(images, axes=(2, 3)))
    np.testing.assert_array_equal(changed["c"], images[..., ::-1])


def test_held_out_classes(tmp_path):
    options = small_data.some_classes(tmp_path, "digits", 3, layers=1, width=16, patch=4)
    known, digits = np.load(options["source"]), load_source("digits")
    unknown = np.load(options["unknown"]["left out"])["images"]
    assert sorted(set(known["labels"])) == list(range(7)) == [int(name) for name in known["classes"]]
    assert len(unknown) == int((digits.labels >= 7).sum())
    assert len(known["images"]) + len(unknown) == len(digits)


def test_transformer_configuration(tmp_path):
    name = small_data.transformer(tmp_path, (3, 32, 32), layers=2, width=8, patch=4)
    config = json.loads((tmp_path / "vit-2-8-4-3x32x32" / "config.json").read_text(encoding="utf-8"))
    assert name == f"hf:{tmp_path / 'vit-2-8-4-3x32x32'}"
    assert (config["num_hidden_layers"], config["hidden_size"], config["image_size"]) == (2, 8, 32)


def test_minilm_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr(small_data, "find_spec", lambda name: None)
    assert small_data.minilm(tmp_path) == {
        "backbone": "hf:sentence-transformers/all-MiniLM-L6-v2",
        "unknown": {},
    }


@pytest.mark.slow
def test_sentences_have_words_of_their_class(tmp_path):
    pytest.importorskip("transformers")
    options = small_data.sentences(tmp_path)
    with open(options["source"], encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["category"] for row in rows} == {"sport", "money", "films"}
    assert len(rows) == 300
    for row in rows:
        words = {"sport": "goal match team coach league", "money": "bank market shares profit trade"}.get(
            row["category"], "actor film music star award"
        )
        assert sum(word in words.split() for word in row["text"].split()) == 3
