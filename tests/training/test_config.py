"""The training configuration: checked, stored, and the recipe it stands for."""

import dataclasses
import json

import pytest

from randomset.errors import FileFormatError, RandomSetError
from randomset.training import TrainConfig


def test_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("none", "default", "mine.pt", "photos", "encoder"):
        (tmp_path / name).mkdir()
    for name in ("none", "default"):  # words, whatever the folder is called
        assert TrainConfig(weights=name).located() == TrainConfig(weights=name)
    found = TrainConfig(source="photos", backbone="hf:encoder", weights="mine.pt").located()
    assert found.source == str(tmp_path / "photos")
    assert found.backbone == f"hf:{tmp_path / 'encoder'}"
    assert found.weights == str(tmp_path / "mine.pt")
    assert found.located() == found
    elsewhere = TrainConfig(source="digits", backbone="hf:bert-base-uncased")
    assert elsewhere.located() == elsewhere


class TestPhases:
    def test_half_of_the_epochs_are_for_the_plain_network(self):
        plain, rest = TrainConfig(epochs=9).phases(1000)
        assert (plain.epochs, rest.epochs) == (4, 5)
        assert (plain.learning_rate, plain.backbone_share) == (3e-3, 1)
        assert rest.learning_rate == pytest.approx(9e-3)  # of the head
        assert rest.learning_rate * rest.backbone_share == pytest.approx(3e-3)
        plain, rest = TrainConfig(epochs=9, first_epochs=7).phases(1000)
        assert (plain.epochs, rest.epochs) == (7, 2)
        assert [part.epochs for part in TrainConfig(epochs=1).phases(1000)] == [1, 1]

    @pytest.mark.parametrize(
        "change",
        [{"from_scratch": True}, {"recipe": "paper"}, {"freeze": True, "weights": "default"}],
        ids=str,
    )
    def test_training_from_scratch_has_all_epochs_twice(self, change):
        plain, rest = TrainConfig(epochs=9, **change).phases(1000)
        assert (plain.epochs, rest.epochs, rest.backbone_share) == (9, 9, 1)

    def test_the_likelihood_has_no_weight_in_the_paper(self):
        assert TrainConfig().likelihood_weight == 0.3
        assert TrainConfig(from_scratch=True).likelihood_weight == 0
        assert TrainConfig(recipe="paper").likelihood_weight == 0
        assert TrainConfig(from_scratch=True, gamma=1).likelihood_weight == 1

    def test_no_epochs_left(self):
        with pytest.raises(RandomSetError, match="no epochs are left to train with sets; got 5 of 5"):
            TrainConfig(epochs=5, first_epochs=5).checked()
        assert TrainConfig(epochs=5, first_epochs=5, from_scratch=True).checked()
        with pytest.raises(RandomSetError, match="from_scratch must be true or false; got yes"):
            TrainConfig(from_scratch="yes").checked()

    def test_a_reliability_is_named(self):
        wrong = r"reliability must be a string; got None; expected auto, neighbours, gaussians or none"
        with pytest.raises(RandomSetError, match=wrong):
            TrainConfig(reliability=None).checked()
        wrong = r"fitted to validation data; got reliability gaussians with validation 0; expected 20 samples"
        with pytest.raises(RandomSetError, match=wrong):
            TrainConfig(reliability="gaussians", validation=0).checked()

    @pytest.mark.parametrize(
        ("stored", "expected"),
        [
            ({}, {"from_scratch": True, "first_epochs": None}),
            ({"from_first": False, "first_epochs": 3}, {"from_scratch": True, "first_epochs": 3}),
            ({"from_first": True}, {"from_scratch": False, "first_epochs": 30, "epochs": 60, "gamma": 0.0}),
            ({"from_first": True, "recipe": "paper"}, {"from_scratch": False, "epochs": None}),
            ({"method": "softmax", "epochs": 2, "first_epochs": 5}, {"epochs": 2, "first_epochs": 5}),
            (
                {"from_first": True, "epochs": 8, "first_epochs": 2},
                {"from_scratch": False, "first_epochs": 2, "epochs": 10},
            ),
            ({"method": "softmax", "from_first": False}, {"from_scratch": False}),
        ],
        ids=str,
    )
    def test_runs_of_earlier_versions_are_described_as_they_were_trained(self, tmp_path, stored, expected):
        TrainConfig().save(tmp_path / "config.json")
        content = json.loads((tmp_path / "config.json").read_text())
        del content["config"]["from_scratch"], content["config"]["gamma"]
        content["config"] |= stored
        (tmp_path / "config.json").write_text(json.dumps(content))
        config = dataclasses.asdict(TrainConfig.load(tmp_path))
        assert {name: config[name] for name in expected} == expected


class TestMembers:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"members": 1}, "members is out of range; got 1; expected 2 or more"),
            ({"members": 2.5}, "members is out of range"),
            (
                {"method": "rsnn"},
                "single network; got 3 members of rsnn. Choose the method random-set-ensemble",
            ),
            ({"method": "softmax"}, "Choose the method ensemble"),
            (
                {"method": "epinet"},
                "no members; got members for epinet; expected one of ensemble, random-set-en",
            ),
        ],
        ids=str,
    )
    def test_a_number_of_members_is_for_ensembles(self, change, message):
        with pytest.raises(RandomSetError, match=message):
            TrainConfig(**{"method": "random-set-ensemble", "members": 3, **change}).checked()

    def test_members_of_a_random_set_ensemble_are_trained_like_a_single_network(self):
        settings = {"recipe": "fast-head", "first_epochs": 3, "reliability": "gaussians"}
        several, one = (TrainConfig(method=name, **settings) for name in ("random-set-ensemble", "rsnn"))
        assert several.checked().plan(1000) == one.checked().plan(1000)


class TestConfiguration:
    def test_round_trip_through_a_file(self, tmp_path):
        config = TrainConfig(
            "digits",
            hidden=(8, 4),
            num_sets="auto",
            learning_rate=0.1,
            class_weight={"3": 2, "8": 1.5},
            sampling="balanced",
            augment="flip+mixup",
            ema=0.99,
            keep="best",
        )
        assert hash(config) == hash(dataclasses.replace(config))
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
            {"members": 3},
            {"members": "x"},
            {"reducer": "magic"},
            {"recipe": "slow"},
            {"code": "import os"},
            {"class_weight": {"3": -1}},
            {"class_weight": [["3", 1], 2]},
            {"sampling": "often"},
            {"augment": "blur"},
            {"augment": 3},
            {"ema": 2},
            {"keep": "worst"},
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

    def test_a_file_of_an_earlier_version(self, tmp_path):
        path = tmp_path / "config.json"
        TrainConfig("digits").save(path)
        content = json.loads(path.read_text())
        for name in ("class_weight", "sampling", "augment", "ema", "keep"):
            del content["config"][name]
        path.write_text(json.dumps(content))
        assert TrainConfig.load(path) == TrainConfig("digits")

    def test_the_recipe_has_the_settings_for_every_network(self):
        config = TrainConfig(class_weight={"a": 2}, sampling="balanced", augment="photos", ema=0.9)
        for plan in (config.plan(), config.plan(plain=True)):
            assert (plan.class_weight, plan.sampling) == ((("a", 2.0),), "balanced")
            assert (plan.augment, plan.ema) == ("photos", 0.9)

    def test_the_best_epoch_needs_validation_data(self):
        with pytest.raises(RandomSetError, match="got keep best with validation 0"):
            TrainConfig(keep="best", validation=0).checked()

    def test_frozen_features_can_only_be_mixed(self):
        frozen = TrainConfig(freeze=True, weights="default")
        dataclasses.replace(frozen, augment="mixup").checked()
        with pytest.raises(RandomSetError, match=r"cannot be augmented; got .* flip\+photos; expected mixup"):
            dataclasses.replace(frozen, augment="photos+mixup+flip").checked()

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
        "scratch": dataclasses.replace(config, from_scratch=True).plan(),
        "tuned": config.phases(50000)[1],
        "plain": config.phases(50000)[0],
        "softmax": dataclasses.replace(config, method="softmax").plan(),
    }
    found = {name: (plan.label_smoothing, plan.backbone_share) for name, plan in plans.items()}
    assert found == {"scratch": (0.0, 1.0), "tuned": (0.0, 0.1), "plain": (0.1, 1.0), "softmax": (0.1, 1.0)}


class TestMistakes:
    def test_unknown_methods(self):
        with pytest.raises(RandomSetError, match="unknown method; got magic"):
            TrainConfig(method="magic").checked()
