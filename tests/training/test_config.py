"""The training configuration: checked, stored, and the recipe it stands for."""

import dataclasses
import json

import pytest

from randomset.errors import FileFormatError, RandomSetError
from randomset.training import TrainConfig


class TestFromFirst:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"freeze": True, "weights": "default"}, "got from_first with freeze"),
            ({"method": "softmax"}, "got from_first with the method softmax"),
            ({"from_first": "yes"}, "from_first must be true or false; got yes"),
        ],
        ids=["frozen", "baseline", "text"],
    )
    def test_from_first_needs_a_plain_network(self, change, message):
        with pytest.raises(RandomSetError, match=message):
            TrainConfig(**{"from_first": True, **change}).checked()


class TestConfiguration:
    def test_round_trip_through_a_file(self, tmp_path):
        config = TrainConfig("digits", hidden=(8, 4), num_sets="auto", learning_rate=0.1)
        config.save(tmp_path / "config.json")
        assert TrainConfig.load(tmp_path) == TrainConfig.load(tmp_path / "config.json") == config

    @pytest.mark.parametrize(
        "change",
        [
            {"alpha": "x"},
            {"validation": "x"},
            {"validation": 0.9},
            {"seed": 1.5},
            {"seed": -1},
            {"num_sets": None},
            {"num_sets": -3},
            {"source": 5},
            {"first_epochs": "q"},
            {"first_epochs": 0},
            {"epochs": 0},
            {"hidden": 7},
            {"hidden": [0]},
            {"reducer": "magic"},
            {"recipe": "slow"},
            {"code": "import os"},
        ],
        ids=str,
    )
    def test_invalid_settings_in_a_file(self, tmp_path, change):
        path = tmp_path / "config.json"
        TrainConfig("digits").save(path)
        content = json.loads(path.read_text())
        content["config"].update(change)
        path.write_text(json.dumps(content))
        with pytest.raises(FileFormatError, match=r"config\.json"):
            TrainConfig.load(path)

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", '{"format": "randomset.run", "version": 1, "config": 3}']
    )
    def test_files_that_are_not_configurations(self, tmp_path, text):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(FileFormatError, match=r"config\.json"):
            TrainConfig.load(tmp_path)

    def test_few_samples_make_small_batches(self):
        assert [TrainConfig().plan(n).batch_size for n in (10, 400, 1000, 10**6)] == [16, 16, 64, 128]
        assert TrainConfig(batch_size=7).plan(10).batch_size == 7


def test_the_faster_head_is_for_random_sets_alone():
    config = TrainConfig(recipe="fast-head")
    assert (config.plan().learning_rate, config.plan().backbone_share) == (0.03, 0.1)
    for other in (config.plan(plain=True), TrainConfig(recipe="fast-head", method="softmax").plan()):
        assert (other.learning_rate, other.backbone_share) == (0.003, 1.0)


def test_freezing_without_weights_makes_no_sense():
    with pytest.raises(RandomSetError, match="freeze without weights"):
        TrainConfig(freeze=True).checked()


def test_the_text_recipe_is_too_slow_for_a_frozen_backbone():
    with pytest.raises(RandomSetError, match="freeze with the recipe text"):
        TrainConfig(freeze=True, weights="default", recipe="text").checked()
    assert TrainConfig(freeze=True, weights="default", recipe="text", learning_rate=1e-3).checked()


def test_the_recipe_speed_for_random_set_networks():
    config = TrainConfig(recipe="speed")
    plans = {
        "scratch": config.plan(),
        "tuned": dataclasses.replace(config, from_first=True).plan(),
        "plain": dataclasses.replace(config, from_first=True).plan(plain=True),
        "softmax": dataclasses.replace(config, method="softmax").plan(),
    }
    found = {name: (plan.label_smoothing, plan.backbone_share) for name, plan in plans.items()}
    assert found == {"scratch": (0.0, 1.0), "tuned": (0.0, 0.1), "plain": (0.2, 1.0), "softmax": (0.2, 1.0)}


class TestMistakes:
    def test_unknown_methods(self):
        with pytest.raises(RandomSetError, match="unknown method; got magic"):
            TrainConfig(method="magic").checked()
