"""The training configuration: checked, stored, and the recipe it stands for."""

import dataclasses
import json

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import randomset as rs
from randomset import Budget, RandomSetNetwork, Recipe, backbones
from randomset.errors import FileFormatError, RandomSetError
from randomset.training import TrainConfig
from tests.training.conftest import BUDGET, quick


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
        settings = {"recipe": "fast-head", "from_first": True, "reliability": "gaussians"}
        several, one = (TrainConfig(method=name, **settings) for name in ("random-set-ensemble", "rsnn"))
        assert several.checked().plan(1000) == one.checked().plan(1000)


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
            {"members": 3},
            {"members": "x"},
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


class TestMistakes:
    def test_unknown_methods(self):
        with pytest.raises(RandomSetError, match="unknown method; got magic"):
            TrainConfig(method="magic").checked()


class TestRecipe:
    def test_a_head_that_learns_faster(self):
        network = RandomSetNetwork(backbones.mlp(4), Budget.singletons(3))
        optimizer = Recipe.named("fast-head").optimizer_for([network])
        rates = {id(p): round(group["lr"], 9) for group in optimizer.param_groups for p in group["params"]}
        assert {rates[id(p)] for p in network.head.parameters()} == {0.03}
        assert {rates[id(p)] for p in network.backbone.parameters()} == {0.003}

    def test_the_papers(self):
        paper = Recipe.paper()
        assert (paper.optimizer, paper.learning_rate, paper.epochs, paper.batch_size) == (
            "adam",
            1e-3,
            200,
            128,
        )
        assert (paper.milestones, paper.factor) == ((80, 120, 160, 180), 0.1)
        assert (paper.shift, paper.flip) == (0.1, True)
        optimizer = paper.optimizer_for([nn.Linear(3, 2)])
        scheduler = paper.scheduler_for(optimizer, 1000)["scheduler"]
        rates = []
        for _ in range(200):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert rates[79:81] == pytest.approx([1e-3, 1e-4])
        assert [rates[i] for i in (119, 120, 160, 180, 199)] == pytest.approx([1e-4, 1e-5, 1e-6, 1e-7, 1e-7])

    def test_one_cycle_goes_up_and_down(self):
        recipe = Recipe.fast()
        optimizer = recipe.optimizer_for([nn.Linear(3, 2)])
        scheduler = recipe.scheduler_for(optimizer, 100)["scheduler"]
        rates = []
        for _ in range(100):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert max(rates) == pytest.approx(recipe.learning_rate)
        assert 15 < rates.index(max(rates)) < 35
        assert rates[-1] < 1e-3 * max(rates)

    @pytest.mark.parametrize("steps", [1, 2, 3, 4])
    def test_a_cycle_of_few_steps(self, steps):
        recipe = Recipe.fast()
        optimizer = recipe.optimizer_for([nn.Linear(3, 2)])
        scheduler = recipe.scheduler_for(optimizer, steps)["scheduler"]
        for _ in range(steps):
            assert 0 < optimizer.param_groups[0]["lr"] <= recipe.learning_rate
            optimizer.step()
            scheduler.step()

    @pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
    @pytest.mark.parametrize("schedule", ["one-cycle", "steps", "cosine", "constant"])
    def test_every_combination_takes_a_step(self, optimizer, schedule):
        recipe = Recipe(optimizer=optimizer, schedule=schedule, weight_decay=0.1)
        layer = nn.Linear(3, 2)
        made = recipe.optimizer_for([layer])
        scheduler = recipe.scheduler_for(made, 10)["scheduler"]
        layer(torch.ones(1, 3)).sum().backward()
        before = layer.weight.clone()
        made.step()
        scheduler.step()
        assert not torch.equal(before, layer.weight)
        decays = {len(group["params"][0].shape): group["weight_decay"] for group in made.param_groups}
        assert decays == {2: 0.1, 1: 0.0}

    def test_edited_and_written(self):
        recipe = dataclasses.replace(Recipe.paper(), epochs=10, milestones=(4, 8))
        assert Recipe.from_dict(recipe.as_dict()) == recipe
        assert Recipe.named(recipe, epochs=None, learning_rate=1.0).learning_rate == 1.0
        assert recipe.learning_rate == 1e-3

    def test_differences_between_recipes(self):
        fast, longer = Recipe.fast(), Recipe.named("fast", epochs=99)
        assert longer.differences(fast) == ["epochs 30 → 99"]
        steps = Recipe.paper()
        assert Recipe.named("paper", epochs=300).differences(steps) == []
        assert Recipe.named("paper", batch_size=7).differences(steps) == ["batch_size 128 → 7"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"epochs": 0}, "epochs"),
            ({"epochs": 1.5}, "epochs"),
            ({"batch_size": -1}, "batch_size"),
            ({"learning_rate": -1.0}, "learning_rate"),
            ({"shift": 1.0}, "shift"),
            ({"optimizer": "lion"}, "adam, adamw, sgd"),
            ({"schedule": "zigzag"}, "one-cycle"),
        ],
    )
    def test_mistakes(self, changes, message):
        with pytest.raises(RandomSetError, match=message):
            Recipe.named("fast", **changes)

    def test_unknown_names(self):
        with pytest.raises(RandomSetError, match="paper, fast"):
            Recipe.named("slow")
        with pytest.raises(RandomSetError, match="code"):
            Recipe.from_dict({"code": 1})
        with pytest.raises(RandomSetError, match="all frozen"):
            Recipe.fast().optimizer_for([nn.Linear(2, 2).requires_grad_(False)])


def test_a_backbone_learns_more_slowly_than_its_head():
    network = RandomSetNetwork(backbones.mlp(4, widths=(3,)), Budget.singletons(2))
    recipe = Recipe(learning_rate=0.1, backbone_share=0.5)
    groups = recipe.optimizer_for([network, nn.Linear(1, 1)]).param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert {rates[id(p)] for p in network.backbone.parameters()} == {0.05}
    assert {rates[id(p)] for p in network.head.parameters()} == {0.1}
    assert len(rates) == 6  # the loss's two as well


@pytest.mark.slow
class TestTraining:
    def test_augmentation_changes_the_loss(self):
        x, y = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
        losses = []
        for shift in (0.0, 0.3):
            torch.manual_seed(0)
            model = rs.RandomSetNetwork(backbones.small_cnn(1, 8, width=4), BUDGET)
            recipe = rs.Recipe.named("fast", shift=shift, flip=bool(shift), batch_size=16)
            losses.append(quick(model, TensorDataset(x, y), recipe=recipe, batch_size=None).last["loss"])
        assert losses[0] != losses[1]
