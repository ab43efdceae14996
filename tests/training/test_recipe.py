"""Recipes: optimizers, schedules, what can be changed, and what is refused."""

import dataclasses
import json

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import randomset as rs
from randomset import Budget, RandomSetNetwork, Recipe, backbones
from randomset.errors import RandomSetError
from tests.training.conftest import BUDGET, quick


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

    def test_a_triangle(self):
        """Of 1,000 steps, 230 up from 0.2 to 1, and the others down to 0.07."""
        recipe = Recipe(optimizer="sgd", schedule="triangular", learning_rate=2.0)
        optimizer = recipe.optimizer_for([nn.Linear(3, 2)])
        scheduler = recipe.scheduler_for(optimizer, 1000)["scheduler"]
        rates = []
        for _ in range(1001):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        expected = {0: 0.4, 115: 1.2, 230: 2.0, 615: 1.07, 1000: 0.14}
        assert {step: rates[step] for step in expected} == pytest.approx(expected)

    @pytest.mark.parametrize("steps", [1, 2, 3, 4])
    def test_a_cycle_of_few_steps(self, steps):
        recipe = Recipe.fast()
        optimizer = recipe.optimizer_for([nn.Linear(3, 2)])
        scheduler = recipe.scheduler_for(optimizer, steps)["scheduler"]
        for _ in range(steps):
            assert 0 < optimizer.param_groups[0]["lr"] <= recipe.learning_rate
            optimizer.step()
            scheduler.step()

    @pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "muon"])
    @pytest.mark.parametrize("schedule", ["one-cycle", "triangular", "steps", "cosine", "constant"])
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

    def test_recipes_of_earlier_versions(self):
        new = {"augment", "class_weight", "sampling", "ema"}
        stored = {name: value for name, value in Recipe.paper().as_dict().items() if name not in new}
        assert Recipe.from_dict(stored) == Recipe.paper()

    def test_class_weights_survive_a_file(self):
        recipe = Recipe.named("fast", class_weight={"cat": 2, "dog": 1}, augment="flip+mixup", ema=0.9)
        again = Recipe.from_dict(json.loads(json.dumps(recipe.as_dict())))
        assert again == recipe
        assert again.differences(recipe) == []
        other = Recipe.named(recipe, class_weight="balanced", ema=0.99)
        assert [text.split(" ")[0] for text in other.differences(recipe)] == ["class_weight", "ema"]

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
            ({"label_smoothing": -0.1}, "0 ≤ label_smoothing < 1"),
            ({"optimizer": "lion"}, "adam, adamw, sgd, muon"),
            ({"schedule": "zigzag"}, "one-cycle"),
            ({"augment": "blur"}, "unknown augmentation; got blur; expected none, flip"),
            ({"sampling": "often"}, "unknown sampling; got often; expected one of uniform, balanced"),
            ({"ema": 1.0}, "ema is out of range; got 1.0"),
            ({"ema": -0.1}, "ema is out of range"),
            ({"class_weight": "much"}, "invalid class_weight"),
            ({"class_weight": {"cat": -1.0}}, "finite and not negative"),
            ({"class_weight": "balanced", "sampling": "balanced"}, "balanced twice"),
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
