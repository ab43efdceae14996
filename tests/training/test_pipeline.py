"""The whole method on tensors, its configuration, and its stages."""

import copy
import dataclasses
import shutil

import pytest
import torch

from randomset import Budget
from randomset.errors import RandomSetError
from randomset.training import TrainConfig, train
from randomset.training.fitting import fit as really_fit
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
        assert again.first is None
        for name, tensor in whole.state_dict().items():
            assert torch.equal(tensor, again.model.state_dict()[name])

    def test_constant_and_single_features(self):
        labels = torch.arange(60) % 3
        for inputs in (torch.ones(60, 4), torch.arange(60.0)[:, None], torch.randn(60, 1).expand(60, 5)):
            network = train(QUICK, inputs.contiguous(), labels, ("a", "b", "c")).model
            assert network.predict(inputs).pignistic.isfinite().all()


@pytest.mark.slow
class TestFromFirst:
    @pytest.mark.parametrize("table", [False, True])
    @pytest.mark.parametrize("given", [False, True], ids=["chosen", "given budget"])
    def test_the_network_starts_where_the_first_one_ended(self, digit_images, monkeypatch, table, given):
        starts: list[dict[str, torch.Tensor]] = []

        def fit(network, *data, **options):
            starts.append(copy.deepcopy(network.state_dict()))
            return really_fit(network, *data, **options)

        monkeypatch.setattr("randomset.training.job.fit", fit)
        inputs, labels, classes = digit_images
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

    def test_an_interruption_between_both_networks_changes_nothing(self, digit_images, tmp_path):
        config = dataclasses.replace(QUICK, from_first=True)
        whole = train(config, *digit_images, out=tmp_path / "whole")
        place = tmp_path / "cut"
        place.mkdir()
        shutil.copytree(tmp_path / "whole" / "first", place / "first")
        shutil.copyfile(tmp_path / "whole" / "budget.json", place / "budget.json")
        resumed = train(config, *digit_images, out=place, resume=True)
        for name, tensor in whole.model.state_dict().items():
            assert torch.equal(tensor, resumed.model.state_dict()[name]), name


class TestMistakes:
    def test_set_valued_labels_are_for_random_sets(self):
        config = TrainConfig(method="softmax", epochs=1)
        with pytest.raises(RandomSetError, match="set-valued labels for softmax"):
            train(config, torch.zeros(4, 2), torch.ones(4, 3, dtype=torch.bool), ("a", "b", "c"))
