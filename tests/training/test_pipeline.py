"""The whole method on tensors, its configuration, and its stages."""

import copy
import dataclasses
import shutil

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetNetwork, backbones
from randomset.backbones import Whitening
from randomset.backbones.inputs import convert_images
from randomset.data import load_source
from randomset.errors import RandomSetError
from randomset.evaluation import evaluate
from randomset.models import Classifier, Ensemble, methods
from randomset.models import load as load_model
from randomset.training import Recipe, TrainConfig, fit, train
from randomset.training.fitting import fit as really_fit
from randomset.training.preparation import backbone_for, preprocess_for
from tests.training.conftest import interrupted_at

QUICK = TrainConfig(epochs=2, num_sets=5)


@pytest.mark.slow
class TestStages:
    def test_images_through_a_first_network(self, digit_images, tmp_path, caplog):
        caplog.set_level("INFO", "randomset.training")
        result = train(QUICK, *digit_images, (digit_images[0][:50], digit_images[1][:50]), out=tmp_path)
        stages = [record.getMessage() for record in caplog.records if record.name == "randomset.training"]
        assert [line.split(" ")[0] for line in stages] == ["Training", "Chose", "Training"]
        assert result.first is not None
        assert result.model.budget.num_sets == 5
        assert result.model.calibration is not None
        assert (tmp_path / "first" / "metrics.csv").exists()
        assert Budget.load(tmp_path / "budget.json") == result.model.budget
        names = ["mean", "std"]
        assert all(f"preprocess.{name}" in result.model.state_dict() for name in names)

    @pytest.mark.parametrize("table", [False, True])
    def test_rows_of_data_that_are_not_copied(self, digit_images, table):
        """Learning from rows of a large tensor is learning from those rows."""
        inputs, labels, classes = digit_images
        inputs = inputs.flatten(1) if table else inputs
        rest, held = torch.arange(0, len(inputs), 2), torch.arange(1, 99, 2)
        copied = train(QUICK, inputs[rest], labels[rest], classes, (inputs[held], labels[held]))
        there = train(QUICK, inputs, labels, classes, rows=rest, val_rows=held)
        for name, tensor in copied.model.state_dict().items():
            assert torch.equal(tensor, there.model.state_dict()[name]), name

    def test_stages_are_resumed(self, digit_images, tmp_path, caplog):
        whole = train(QUICK, *digit_images, out=tmp_path / "whole").model
        with interrupted_at("Training the random-set"):
            train(QUICK, *digit_images, out=tmp_path / "part")
        caplog.clear()
        caplog.set_level("INFO", "randomset.training")
        again = train(QUICK, *digit_images, out=tmp_path / "part", resume=True)
        assert caplog.records[0].getMessage().startswith("Resuming with Budget")
        assert again.first is not None  # read again, since the head was fitted to its features
        for name, tensor in whole.state_dict().items():
            assert torch.equal(tensor, again.model.state_dict()[name])

    def test_constant_and_single_features(self):
        labels = torch.arange(60) % 3
        for inputs in (torch.ones(60, 4), torch.arange(60.0)[:, None], torch.randn(60, 1).expand(60, 5)):
            network = train(QUICK, inputs.contiguous(), labels, ("a", "b", "c")).model
            assert network.predict(inputs).pignistic.isfinite().all()


@pytest.mark.slow
class TestFromPlain:
    @pytest.mark.parametrize("table", [False, True])
    @pytest.mark.parametrize("given", [False, True], ids=["chosen", "given budget"])
    def test_the_network_starts_where_the_first_one_ended(self, digit_images, monkeypatch, table, given):
        starts: list[dict[str, torch.Tensor]] = []

        def fit(network, *data, **options):
            starts.append(copy.deepcopy(network.state_dict()))
            return really_fit(network, *data, **options)

        monkeypatch.setattr("randomset.training.pipeline.fit", fit)
        inputs, labels, classes = digit_images
        inputs = inputs.flatten(1) if table else inputs
        budget = Budget.from_sets([{"1", "7"}], classes) if given else None
        result = train(QUICK, inputs, labels, classes, budget=budget)
        assert result.plain is not None
        ended = {
            name: tensor for name, tensor in result.plain.state_dict().items() if name.startswith("backbone.")
        }
        assert ended
        for name, tensor in ended.items():
            assert torch.equal(starts[1][name], tensor), name
        moved = [
            name for name, tensor in ended.items() if not torch.equal(starts[0][name].float(), tensor.float())
        ]
        assert moved  # the first network has learned something to start from

    def test_the_head_starts_with_the_predictions_of_the_plain_network(self, digit_images, monkeypatch):
        """On the training data, which it is fitted to: about as accurate, and mostly the same classes."""
        starts = []

        def fit(network, *data, **options):
            starts.append(copy.deepcopy(network).eval())
            return really_fit(network, *data, **options)

        monkeypatch.setattr("randomset.training.pipeline.fit", fit)
        inputs, labels, classes = digit_images
        result = train(dataclasses.replace(QUICK, epochs=6), inputs, labels, classes)
        plain, start = result.plain.predict(inputs).labels, starts[1].predict(inputs).labels
        accuracy = [(found == labels).double().mean().item() for found in (plain, start)]
        assert accuracy[1] > accuracy[0] - 0.02
        assert (plain == start).double().mean() > 0.95

    def test_the_head_is_fitted_with_the_weights_of_the_classes(self, digit_images, monkeypatch):
        seen = []

        def fit_head(head, features, labels, loss, weights=None, **options):
            seen.append(weights)

        monkeypatch.setattr("randomset.models.random_set.fit_head", fit_head)
        inputs, labels, classes = digit_images
        own = torch.linspace(1, 2, len(labels))
        by_class = torch.arange(1.0, 1 + len(classes))
        counts = labels.bincount(minlength=len(classes))
        balanced = (len(labels) / (len(classes) * counts))[labels]
        for changes, weights, expected in (
            ({}, None, None),
            ({}, own, own),
            ({"class_weight": tuple(by_class.tolist())}, own, own * by_class[labels]),
            ({"class_weight": "balanced"}, None, balanced),
            ({"sampling": "balanced"}, None, balanced),
        ):
            train(dataclasses.replace(QUICK, epochs=2, **changes), inputs, labels, classes, weights=weights)
            found = seen.pop()
            assert found is expected or torch.allclose(found, expected.float())

    def test_one_history_has_both_phases(self, digit_images, tmp_path, caplog):
        caplog.set_level("INFO", "randomset")
        config = dataclasses.replace(QUICK, epochs=5, first_epochs=3)
        result = train(config, *digit_images, (digit_images[0][:50], digit_images[1][:50]), out=tmp_path)
        assert [(row["phase"], row["epoch"]) for row in result.fit.history] == [
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 4),
            (2, 5),
        ]
        steps = [row["step"] for row in result.fit.history]
        assert steps == sorted(steps)
        assert result.fit.planned == 5
        assert result.fit.best["phase"] == 2  # its weights are those of the network
        lines = (tmp_path / "metrics.csv").read_text().splitlines()
        assert [line.split(",")[0] for line in lines] == ["phase", "1", "1", "1", "2", "2"]
        logged = [each.getMessage() for each in caplog.records if each.name == "randomset.training.epochs"]
        assert [text.split(":")[0] for text in logged] == [f"epoch {number}" for number in range(1, 6)]

    def test_each_phase_has_its_own_callbacks(self, digit_images):
        from lightning.pytorch.callbacks import EarlyStopping

        patience = EarlyStopping("val_accuracy", patience=0, mode="max", stopping_threshold=0.0)
        config = dataclasses.replace(QUICK, epochs=6)
        data = (digit_images[0][:50], digit_images[1][:50])
        result = train(config, *digit_images, data, callbacks=[patience])
        assert [row["phase"] for row in result.fit.history] == [
            1,
            2,
        ]  # each reaches the threshold in one epoch
        assert patience.wait_count == patience.stopped_epoch == 0

    @pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
    def test_the_precision_of_the_training(self, digit_images, precision):
        inputs, labels, classes = digit_images
        result = train(QUICK, inputs.flatten(1), labels, classes, precision=precision)
        assert result.model.predict(inputs[:5].flatten(1)).pignistic.isfinite().all()

    def test_from_scratch_trains_two_networks(self, digit_images):
        result = train(dataclasses.replace(QUICK, from_scratch=True), *digit_images)
        assert [len(report.history) for report in (result.first, result.fit)] == [2, 2]

    def test_an_interruption_between_both_networks_changes_nothing(self, digit_images, tmp_path):
        whole = train(QUICK, *digit_images, out=tmp_path / "whole")
        place = tmp_path / "cut"
        place.mkdir()
        shutil.copytree(tmp_path / "whole" / "first", place / "first")
        shutil.copyfile(tmp_path / "whole" / "budget.json", place / "budget.json")
        resumed = train(QUICK, *digit_images, out=place, resume=True)
        for name, tensor in whole.model.state_dict().items():
            assert torch.equal(tensor, resumed.model.state_dict()[name]), name


@pytest.mark.slow
class TestFastCNN:
    """On handwritten digits, enlarged to 16 × 16 pixels, without the flips that are for photos."""

    @pytest.fixture
    def images(self):
        source = load_source("digits")
        return convert_images(source.inputs, (1, 16, 16))[0], source.labels, source.classes

    @pytest.mark.parametrize("method", ["softmax", "rsnn"])
    def test_it_learns(self, images, method, monkeypatch):
        speed = dataclasses.replace(Recipe.speed(), flip=False)
        monkeypatch.setattr(Recipe, "speed", lambda: speed)
        config = TrainConfig(
            method=method, backbone="fast_cnn", width=16, recipe="speed", epochs=4, num_sets=5
        )
        rows = {"rows": torch.arange(1200), "val_rows": torch.arange(1200, 1797)}
        report = train(config, *images, **rows).fit
        assert report.last["val_accuracy"] > 0.7  # chance is 0.1

    def test_every_network_has_the_same_whitening(self, images):
        config = dataclasses.replace(QUICK, backbone="fast_cnn", width=4, mirror=True, epochs=1)
        standardise = preprocess_for(nn.Identity(), images[0])
        assert standardise is not None
        expected = Whitening(1).fit(standardise(images[0])).state_dict()["weight"]
        result = train(config, *images)
        for network in (result.plain, result.model):
            assert backbones.names(network.backbone.spec) == ["mirrored", "fast_cnn"]
            assert torch.equal(network.state_dict()["backbone.layers.layers.0.weight"], expected)
        members = train(dataclasses.replace(config, method="ensemble"), *images).model.members
        first, second = (member.state_dict() for member in members[:2])
        assert torch.equal(first["backbone.layers.layers.0.weight"], expected)
        assert torch.equal(second["backbone.layers.layers.0.weight"], expected)
        assert not torch.equal(
            first["backbone.layers.layers.9.weight"], second["backbone.layers.layers.9.weight"]
        )

    def test_only_images_can_be_mirrored(self, images):
        with pytest.raises(RandomSetError, match="mirror applies only to images"):
            train(TrainConfig(mirror=True), images[0].flatten(1), *images[1:])


class TestMistakes:
    def test_set_valued_labels_are_for_random_sets(self):
        config = TrainConfig(method="softmax", epochs=1)
        with pytest.raises(RandomSetError, match="set-valued labels for softmax"):
            train(config, torch.zeros(4, 2), torch.ones(4, 3, dtype=torch.bool), ("a", "b", "c"))


BASELINES = [name for name in methods() if name != "rsnn"]


@pytest.fixture(scope="module")
def digits():
    """Digits 0 to 7, split; and the others."""
    source = load_source("digits")
    known = (source.labels < 8).nonzero()[:, 0]
    part = source.part(known)
    rest, held, test = part.split(0.1, 0.2, seed=0)
    return part, rest, held, test, source.inputs[source.labels >= 8]


def trained(method, digits, epochs=12, **options):
    part, rest, held, _, _ = digits
    config = TrainConfig(method=method, epochs=epochs, seed=0)
    return train(
        config,
        part.inputs,
        part.labels,
        part.classes[:8],
        rows=rest,
        val_rows=held,
        progress=False,
        **options,
    ).model


@pytest.mark.slow
@pytest.mark.parametrize("method", BASELINES)
def test_learns_digits_and_notices_unknown_ones(method, digits, tmp_path):
    """Above 95 % of the known ones; unknown ones are detected with an AUROC well above chance."""
    part, _, _, test, unknown = digits
    model = trained(method, digits)
    result = evaluate(model, part.part(test), {"8 and 9": unknown}, classes=part.classes[:8])
    assert result["test"]["accuracy"] > 0.95
    scores = result["ood"]["8 and 9"]["scores"]
    assert scores["entropy"]["auroc"] > 0.85
    own = set(scores) & {"mutual information", "vacuity"}
    assert bool(own) == (method not in ("softmax", "temperature", "wrapped"))
    for score in own:
        assert scores[score]["auroc"] > 0.6
    model.notes = {"classes": list("01234567")}
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert isinstance(again, Classifier)
    assert (type(again), again.notes) == (type(model), model.notes)
    assert torch.equal(again.predict(unknown).confidence, model.predict(unknown).confidence)


@pytest.mark.slow
class TestResuming:
    def test_an_ensemble_resumes_with_its_next_member(self, digits, tmp_path):
        with interrupted_at("Member 3"):
            trained("ensemble", digits, epochs=1, out=tmp_path)
        stamp = (tmp_path / "member-0" / "metrics.csv").stat().st_mtime_ns
        whole = trained("ensemble", digits, epochs=1)
        again = trained("ensemble", digits, epochs=1, out=tmp_path, resume=True)
        assert isinstance(again, Ensemble)
        assert len(again.members) == 5
        for name, tensor in whole.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name]), name
        assert (tmp_path / "member-0" / "metrics.csv").stat().st_mtime_ns == stamp

    def test_members_differ(self, digits):
        ensemble = trained("ensemble", digits, epochs=1)
        first, second = (member.layer.weight for member in ensemble.members[:2])
        assert not torch.equal(first, second)


@pytest.fixture(scope="module")
def source_digits():
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


def settings(weights, **changes):
    fields = {"backbone": "small_cnn", "weights": weights, "freeze": True, "num_sets": 5, "epochs": 15}
    return TrainConfig(**{**fields, **changes})


@pytest.mark.slow
class TestFrozen:
    def test_the_head_alone_learns(self, source_digits, weights, tmp_path, caplog):
        caplog.set_level("INFO", "randomset.training")
        source, rest, held = source_digits
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
    def test_baselines_too(self, method, source_digits, weights, tmp_path):
        source, rest, held = source_digits
        model = train(
            settings(weights, method=method), source.inputs, source.labels, source.classes,
            rows=rest, val_rows=held, progress=False,
        ).model  # fmt: skip
        p = model.predict(source.inputs[held]).probabilities
        assert (p.argmax(1) == source.labels[held]).double().mean() > 0.9
        model.save(tmp_path)
        assert torch.equal(load_model(tmp_path).predict(source.inputs[held]).probabilities, p)

    def test_fine_tuning_starts_from_the_weights(self, source_digits, weights):
        source, rest, held = source_digits
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
