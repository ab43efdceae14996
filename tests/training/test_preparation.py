"""What a training starts from: weights, preprocessing, and features that are computed once."""

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetLoss, RandomSetNetwork, backbones
from randomset.backbones.base import PretrainedInputs
from randomset.data import load_source
from randomset.errors import RandomSetError
from randomset.models import load as load_model
from randomset.models import methods
from randomset.training import Recipe, TrainConfig, fit, train
from randomset.training.loaders import EpochLoader
from randomset.training.preparation import backbone_for, frozen_features, preprocess_for, scaled_features


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANDOMSET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def digits():
    source = load_source("digits")
    rest, held = source.split(0.2, seed=0)
    return source, rest[:600], held


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights of a backbone that has seen digits."""
    path = tmp_path_factory.mktemp("weights") / "w.pt"
    source = load_source("digits")
    torch.manual_seed(0)
    backbone = backbones.small_cnn(image_size=8)
    model = nn.Sequential(preprocess_for(backbone, source.inputs), backbone, nn.Linear(128, 10))
    fit(model, (source.inputs, source.labels), loss=nn.CrossEntropyLoss(), epochs=8, progress=False)
    torch.save(backbone.state_dict(), path)
    return str(path)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 3), 0

    def forward(self, inputs):
        self.calls += 1
        return self.layer(inputs)


class TestFrozenFeatures:
    def test_they_are_computed_once(self, cache, caplog):
        caplog.set_level("INFO", "randomset.training")
        torch.manual_seed(0)
        model, inputs = Counting().eval(), torch.randn(300, 4)
        first = frozen_features(model, None, inputs)
        calls = model.calls
        again = frozen_features(model, None, inputs)
        assert torch.equal(first, model.layer(inputs).detach())
        assert torch.equal(first, again)
        assert model.calls == calls > 0
        assert [record.getMessage().split()[0] for record in caplog.records] == ["Computing", "Using"]
        assert len(list((cache / "features").iterdir())) == 1

    def test_anything_that_changes_is_noticed(self, cache):
        torch.manual_seed(0)
        model, inputs = Counting().eval(), torch.randn(300, 4)
        frozen_features(model, None, inputs)
        other = inputs.clone()
        other[299, 3] += 1e-6
        frozen_features(model, None, other)
        frozen_features(model, nn.LayerNorm(4), inputs)
        with torch.no_grad():
            model.layer.bias[2] += 1e-6
        frozen_features(model, None, inputs)
        assert len(list((cache / "features").iterdir())) == 4

    def test_a_damaged_file_is_made_again(self, cache):
        torch.manual_seed(0)
        model, inputs = Counting().eval(), torch.randn(30, 4)
        first = frozen_features(model, None, inputs)
        (file,) = (cache / "features").iterdir()
        file.write_bytes(b"nothing")
        assert torch.equal(frozen_features(model, None, inputs), first)

    def test_a_place_that_cannot_be_written(self, tmp_path, monkeypatch, caplog):
        (tmp_path / "file").write_text("x")
        monkeypatch.setenv("RANDOMSET_CACHE", str(tmp_path / "file"))
        caplog.set_level("INFO", "randomset.training")
        frozen_features(Counting().eval(), None, torch.randn(3, 4))
        assert "Could not cache the features" in caplog.text


def settings(weights, **changes):
    fields = {"backbone": "small_cnn", "weights": weights, "freeze": True, "num_sets": 5, "epochs": 15}
    return TrainConfig(**{**fields, **changes})


@pytest.mark.slow
class TestFrozen:
    def test_the_head_alone_learns(self, digits, weights, tmp_path, caplog):
        caplog.set_level("INFO", "randomset.training")
        source, rest, held = digits
        result = train(
            settings(weights), source.inputs, source.labels, source.classes,
            rows=rest, val_rows=held, progress=False, out=tmp_path / "run",
        )  # fmt: skip
        assert caplog.records[0].getMessage().startswith("Computing features")
        assert result.first is None  # the pretrained features choose the sets
        network = result.model
        assert network.backbone_frozen
        before = torch.load(weights, weights_only=True)
        inner, scale = network.backbone.layers.children()
        assert all(torch.equal(t, before[name]) for name, t in inner.state_dict().items())
        found = network.features(source.inputs[rest])  # of one scale, as the head has learned from them
        moving = scale.std != 1  # some never change
        assert torch.allclose(found.mean(0), torch.zeros(len(scale.mean)), atol=1e-4)
        assert torch.allclose(found.std(0, correction=0)[moving], torch.ones(int(moving.sum())), atol=1e-4)
        right = network.predict(source.inputs[held]).labels == source.labels[held]
        assert right.double().mean() > 0.9
        network.save(tmp_path / "run")
        again = RandomSetNetwork.load(tmp_path / "run")
        inputs = source.inputs[held]
        assert torch.equal(again.predict(inputs).mass, network.predict(inputs).mass)

    @pytest.mark.parametrize("method", [name for name in methods() if name != "rsnn"])
    def test_baselines_too(self, method, digits, weights, tmp_path):
        source, rest, held = digits
        model = train(
            settings(weights, method=method), source.inputs, source.labels, source.classes,
            rows=rest, val_rows=held, progress=False,
        ).model  # fmt: skip
        p = model.predict(source.inputs[held]).probabilities
        assert (p.argmax(1) == source.labels[held]).double().mean() > 0.9
        model.save(tmp_path)
        assert torch.equal(load_model(tmp_path).predict(source.inputs[held]).probabilities, p)

    def test_all_weights_learn_from_where_they_are(self, digits, weights):
        source, rest, held = digits
        config = settings(weights, freeze=False, epochs=5)
        assert config.plan(600).backbone_share == pytest.approx(0.1)
        result = train(
            config, source.inputs, source.labels, source.classes, rows=rest, val_rows=held, progress=False
        )
        right = result.model.predict(source.inputs[held]).labels == source.labels[held]
        assert right.double().mean() > 0.8  # after five epochs at a tenth of the rate
        before = torch.load(weights, weights_only=True)
        assert not torch.equal(
            result.model.backbone.state_dict()["layers.0.weight"], before["layers.0.weight"]
        )


def test_freezing_without_weights_makes_no_sense():
    with pytest.raises(RandomSetError, match="freeze without weights"):
        TrainConfig(freeze=True).checked()


def test_a_head_alone_needs_more_than_fine_tuning_gives():
    with pytest.raises(RandomSetError, match="freeze with the recipe text"):
        TrainConfig(freeze=True, weights="default", recipe="text").checked()
    assert TrainConfig(freeze=True, weights="default", recipe="text", learning_rate=1e-3).checked()


def test_a_users_own_backbone_keeps_its_features():
    own, features = nn.Linear(2, 3), torch.randn(5, 3)
    backbone, scale = scaled_features(own, features)
    assert backbone is own
    assert torch.equal(scale(features), features)


def test_validation_inputs_of_a_frozen_backbone_become_features_too(tmp_path):
    torch.manual_seed(0)
    inputs, labels, classes = torch.randn(60, 4), torch.arange(60) % 3, ("a", "b", "c")
    config = TrainConfig(
        backbone="mlp", width=6, weights=str(tmp_path / "weights.pt"), freeze=True, epochs=2, num_sets=0
    )
    torch.save(backbone_for("mlp", inputs, 6).state_dict(), tmp_path / "weights.pt")
    rest, held = torch.arange(40), torch.arange(40, 60)
    apart = train(config, inputs[rest], labels[rest], classes, (inputs[held], labels[held]))
    inside = train(config, inputs, labels, classes, rows=rest, val_rows=held)
    assert apart.fit.history[-1]["val_loss"] == pytest.approx(inside.fit.history[-1]["val_loss"], rel=1e-4)


def test_a_backbone_learns_more_slowly_than_its_head():
    network = RandomSetNetwork(backbones.mlp(4, widths=(3,)), Budget.singletons(2))
    recipe = Recipe(learning_rate=0.1, backbone_share=0.5)
    groups = recipe.optimizer_for([network, nn.Linear(1, 1)]).param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert {rates[id(p)] for p in network.backbone.parameters()} == {0.05}
    assert {rates[id(p)] for p in network.head.parameters()} == {0.1}
    assert len(rates) == 6  # the loss's two as well


def test_what_weights_are_used_to_comes_first():
    backbone = nn.Identity()
    backbone.pretrained_inputs = PretrainedInputs((0.4, 0.5, 0.6), (0.1, 0.2, 0.3), 224)
    colour, grey = torch.rand(2, 3, 8, 8), torch.rand(2, 1, 8, 8)
    assert preprocess_for(backbone, colour).mean.tolist() == pytest.approx([0.4, 0.5, 0.6])
    assert preprocess_for(backbone, grey).mean.tolist() == pytest.approx([0.5])
    assert preprocess_for(backbone, torch.zeros(2, 5, dtype=torch.long)) is None
    assert preprocess_for(nn.Identity(), colour).mean.tolist() == pytest.approx(
        colour.mean((0, 2, 3)).tolist()
    )


@pytest.mark.parametrize(
    ("name", "inputs", "options", "message"),
    [
        ("small_cnn", torch.zeros(2, 1, 8, 8), {"weights": "default"}, "no weights are published"),
        ("auto", torch.zeros(2, 5, dtype=torch.long), {}, "texts need a text encoder"),
        ("hf:x", torch.zeros(2, 5), {}, "expects images or texts"),
        ("timm:x", torch.zeros(2, 3, 8, 8), {"width": 4}, "width applies to the backbones of randomset only"),
        ("magic", torch.zeros(2, 3, 8, 8), {}, "unknown backbone; got magic"),
    ],
)
def test_mistakes(name, inputs, options, message):
    with pytest.raises(RandomSetError, match=message):
        backbone_for(name, inputs, **options)


def test_all_sets_of_few_classes_need_no_choice():
    inputs, labels = torch.randn(60, 3), torch.arange(60) % 4
    result = train(TrainConfig(num_sets=10, epochs=1), inputs, labels, tuple("abcd"), progress=False)
    assert len(result.model.budget) == 14  # all of 15 but Θ
    assert result.budgeter is None


class TwoEnds(nn.Module):
    """A backbone with an auxiliary output in training, as Inception has."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(4, 5)
        self.num_features, self.auxiliary_features = 6, 5

    def forward(self, inputs):
        main = self.first(inputs).relu()
        return (main, self.second(inputs).relu()) if self.training else main


class TestAuxiliary:
    BUDGET = Budget.from_sets([(0, 1)], 3)

    def test_the_loss_of_a_pair(self):
        loss, labels = RandomSetLoss(self.BUDGET), torch.tensor([0, 2])
        main, second = torch.randn(2, 4), torch.randn(2, 4)
        expected = loss(main, labels) + 0.4 * loss(second, labels)
        assert loss((main, second), labels).item() == pytest.approx(expected.item())
        assert loss.terms["loss"].item() == pytest.approx(loss(main, labels).item())

    def test_both_ends_learn_and_one_predicts(self, tmp_path):
        torch.manual_seed(0)
        inputs, labels = torch.randn(90, 4), torch.arange(90) % 3
        inputs[torch.arange(90), labels] += 3
        network = RandomSetNetwork(TwoEnds(), self.BUDGET)
        before = network.auxiliary_head.layers[-1].weight.clone()
        fit(network, (inputs, labels), epochs=30, batch_size=30, learning_rate=0.03, progress=False)
        assert not torch.equal(network.auxiliary_head.layers[-1].weight, before)
        assert (network.predict(inputs).labels == labels).double().mean() > 0.9
        network.save(tmp_path)
        again = RandomSetNetwork.load(tmp_path, TwoEnds())
        assert torch.equal(again.predict(inputs).mass, network.predict(inputs).mass)


class TestTextsInBatches:
    def loader(self, batch_size=8):
        lengths = torch.randint(1, 40, (203,), generator=torch.Generator().manual_seed(0))
        tokens = torch.where(torch.arange(40) < lengths[:, None], 5, -1)
        data = torch.utils.data.TensorDataset(tokens, torch.arange(203))
        return EpochLoader(data, batch_size, seed=3), lengths

    def test_neighbours_are_of_similar_length(self):
        loader, lengths = self.loader()
        batches = [labels for _, labels in loader]
        assert sorted(torch.cat(batches).tolist()) == list(range(203))
        filled = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
        assert filled < 1.15 * int(lengths.sum())  # at random it is about 1.7 times
        assert [len(batch) for batch in batches][:-1] == [8] * (len(batches) - 1)

    def test_another_order_in_every_epoch(self):
        loader, _ = self.loader()
        first, second = ([labels.tolist() for _, labels in loader] for _ in range(2))
        assert first != second
        again, _ = self.loader()
        assert [labels.tolist() for _, labels in again] == first
