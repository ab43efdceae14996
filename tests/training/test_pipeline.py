"""The whole method on tensors, its configuration, and its stages."""

import copy
import dataclasses
import json
import shutil

import pytest
import torch

from randomset import Budget
from randomset.data import load_source
from randomset.errors import FileFormatError, RandomSetError
from randomset.models.set_selection import ClassLoss
from randomset.training import TrainConfig, train
from randomset.training.fitting import fit as really_fit
from randomset.training.preparation import backbone_for
from tests.training.interruptions import interrupted_at


@pytest.fixture(scope="module")
def digits():
    source = load_source("digits")
    return source.inputs[:400], source.labels[:400], source.classes


QUICK = TrainConfig(epochs=2, num_sets=5)


@pytest.mark.slow
class TestStages:
    def test_images_through_a_first_network(self, digits, tmp_path, caplog):
        caplog.set_level("INFO", "randomset.training")
        result = train(QUICK, *digits, (digits[0][:50], digits[1][:50]), out=tmp_path)
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
    def test_rows_of_data_that_are_not_copied(self, digits, table):
        """Learning from rows of a large tensor is learning from those rows."""
        inputs, labels, classes = digits
        inputs = inputs.flatten(1) if table else inputs
        rest, held = torch.arange(0, len(inputs), 2), torch.arange(1, 99, 2)
        copied = train(QUICK, inputs[rest], labels[rest], classes, (inputs[held], labels[held]))
        there = train(QUICK, inputs, labels, classes, rows=rest, val_rows=held)
        for name, tensor in copied.model.state_dict().items():
            assert torch.equal(tensor, there.model.state_dict()[name]), name

    def test_tables_choose_their_budget_themselves(self, digits):
        inputs, labels, classes = digits
        result = train(QUICK, inputs.flatten(1), labels, classes)
        assert result.first is None
        assert result.budgeter is not None
        assert result.model.backbone.spec["name"] == "mlp"

    def test_a_given_budget_is_used_and_kept(self, digits, tmp_path):
        budget = Budget.from_sets([{"1", "7"}], digits[2])
        result = train(QUICK, *digits, budget=budget, out=tmp_path)
        assert result.model.budget == budget == Budget.load(tmp_path / "budget.json")
        assert result.first is None

    def test_set_valued_labels(self, digits):
        inputs, labels, classes = digits
        mask = torch.nn.functional.one_hot(labels, 10).bool()
        mask[:, 3] |= mask[:, 8]
        mask[:, 8] |= mask[:, 3]  # never told apart
        for data in (inputs, inputs.flatten(1)):
            result = train(QUICK, data, mask, classes, (data[:50], mask[:50]))
            assert {"3", "8"} in result.model.budget

    def test_stages_are_resumed(self, digits, tmp_path, caplog):
        whole = train(QUICK, *digits, out=tmp_path / "whole").model
        with interrupted_at("Training the random-set"):
            train(QUICK, *digits, out=tmp_path / "part")
        caplog.clear()
        caplog.set_level("INFO", "randomset.training")
        again = train(QUICK, *digits, out=tmp_path / "part", resume=True)
        assert caplog.records[0].getMessage().startswith("Resuming with Budget")
        assert again.first is None
        for name, tensor in whole.state_dict().items():
            assert torch.equal(tensor, again.model.state_dict()[name])

    def test_classes_too_few_for_sets(self):
        inputs, labels = torch.randn(60, 3), torch.arange(60) % 2
        assert train(QUICK, inputs, labels, ("a", "b")).model.budget == Budget.singletons(["a", "b"])
        labels = torch.arange(60) % 3
        budget = train(QUICK, inputs, labels, ("a", "b", "c")).model.budget
        assert len(budget) == 6  # the pairs; Θ is in every prediction anyway

    def test_constant_and_single_features(self):
        labels = torch.arange(60) % 3
        for inputs in (torch.ones(60, 4), torch.arange(60.0)[:, None], torch.randn(60, 1).expand(60, 5)):
            network = train(QUICK, inputs.contiguous(), labels, ("a", "b", "c")).model
            assert network.predict(inputs).pignistic.isfinite().all()


@pytest.mark.slow
class TestFromFirst:
    @pytest.mark.parametrize("table", [False, True])
    @pytest.mark.parametrize("given", [False, True], ids=["chosen", "given budget"])
    def test_the_network_starts_where_the_first_one_ended(self, digits, monkeypatch, table, given):
        starts: list[dict[str, torch.Tensor]] = []

        def fit(network, *data, **options):
            starts.append(copy.deepcopy(network.state_dict()))
            return really_fit(network, *data, **options)

        monkeypatch.setattr("randomset.training.job.fit", fit)
        inputs, labels, classes = digits
        inputs = inputs.flatten(1) if table else inputs
        budget = Budget.from_sets([{"1", "7"}], classes) if given else None
        result = train(dataclasses.replace(QUICK, from_first=True), inputs, labels, classes, budget=budget)
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

    def test_an_interruption_between_both_networks_changes_nothing(self, digits, tmp_path):
        config = dataclasses.replace(QUICK, from_first=True)
        whole = train(config, *digits, out=tmp_path / "whole")
        place = tmp_path / "cut"
        place.mkdir()
        shutil.copytree(tmp_path / "whole" / "first", place / "first")
        shutil.copyfile(tmp_path / "whole" / "budget.json", place / "budget.json")
        resumed = train(config, *digits, out=place, resume=True)
        for name, tensor in whole.model.state_dict().items():
            assert torch.equal(tensor, resumed.model.state_dict()[name]), name

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"freeze": True, "weights": "default"}, "got from_first with freeze"),
            ({"method": "softmax"}, "got from_first with the method softmax"),
            ({"from_first": "yes"}, "from_first must be true or false; got yes"),
        ],
        ids=["frozen", "rival", "text"],
    )
    def test_where_there_is_no_first_network(self, change, message):
        with pytest.raises(RandomSetError, match=message):
            TrainConfig(**{"from_first": True, **change}).checked()


class TestBackbones:
    @pytest.mark.parametrize(
        ("name", "shape", "expected"),
        [
            ("auto", (2, 7), "mlp"),
            ("auto", (2, 1, 8, 8), "small_cnn"),
            ("auto", (2, 3, 8, 12), "resnet"),
            ("mlp", (2, 1, 8, 8), "mlp"),
            ("resnet50", (2, 3, 32, 32), "resnet"),
            ("wide_resnet", (2, 3, 32, 32), "wide_resnet"),
        ],
    )
    def test_by_name_and_shape(self, name, shape, expected):
        with torch.device("meta"):
            assert backbone_for(name, torch.zeros(shape)).spec["name"] == expected

    @pytest.mark.parametrize(
        ("name", "shape", "message"),
        [
            ("vgg", (2, 3, 8, 8), "small_cnn"),
            ("small_cnn", (2, 3, 8, 9), "square"),
            ("resnet18", (2, 3), "expects images"),
        ],
    )
    def test_what_does_not_fit(self, name, shape, message):
        with pytest.raises(RandomSetError, match=message):
            backbone_for(name, torch.zeros(shape))


def test_the_plain_loss():
    outputs = torch.randn(4, 3)
    labels = torch.tensor([0, 1, 2, 0])
    expected = torch.nn.functional.cross_entropy(outputs, labels)
    assert ClassLoss()(outputs, labels).item() == pytest.approx(expected.item())
    mask = torch.nn.functional.one_hot(labels, 3).bool()
    assert ClassLoss()(outputs, mask).item() == pytest.approx(expected.item())
    weighted = ClassLoss()(outputs, labels, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert weighted.item() == pytest.approx(torch.nn.functional.cross_entropy(outputs[:2], labels[:2]).item())


class TestConfiguration:
    def test_comes_back_from_its_file(self, tmp_path):
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
    def test_a_file_that_cannot_be_followed(self, tmp_path, change):
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
    def test_a_file_that_is_none(self, tmp_path, text):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(FileFormatError, match=r"config\.json"):
            TrainConfig.load(tmp_path)

    def test_few_samples_make_small_batches(self):
        assert [TrainConfig().plan(n).batch_size for n in (10, 400, 1000, 10**6)] == [16, 16, 64, 128]
        assert TrainConfig(batch_size=7).plan(10).batch_size == 7


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("mlp", (2, 7), 16),
        ("mlp", (2, 1, 4, 4), 16),
        ("small_cnn", (2, 3, 8, 8), 64),
        ("resnet18", (2, 3, 8, 8), 128),
        ("wide_resnet", (2, 3, 8, 8), 128),
    ],
)
def test_a_width(name, shape, features):
    backbone = backbone_for(name, torch.zeros(shape), 2 if name == "wide_resnet" else 16)
    assert backbone.num_features == features
    with pytest.raises(RandomSetError, match="width is out of range; got 0"):
        TrainConfig(width=0).checked()


def test_the_faster_head_is_for_random_sets_alone():
    config = TrainConfig(recipe="fast-head")
    assert (config.plan().learning_rate, config.plan().backbone_share) == (0.03, 0.1)
    for other in (config.plan(plain=True), TrainConfig(recipe="fast-head", method="softmax").plan()):
        assert (other.learning_rate, other.backbone_share) == (0.003, 1.0)
