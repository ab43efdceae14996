"""Files of networks: everything comes back, and what cannot be read is refused."""

import json
import pickle

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from randomset import Budget, RandomSetNetwork, backbones
from randomset.backbones import Standardise
from randomset.errors import FileFormatError, RandomSetError
from randomset.models import BeliefTemperature
from tests.models.networks import BUDGET, IMAGES, X, network


def rewrite_header(path, change):
    with safe_open(str(path), "pt") as file:
        header = json.loads(file.metadata()["model"])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(state, path, {"model": json.dumps(change(header))})


def changed(header, change):
    """Change what the header says, or what it says of the model."""
    if set(change) <= {"format", "version", "notes"}:
        return {**header, **change}
    return {**header, "model": {**header["model"], **change}}


class TestFiles:
    def full(self):
        model = network(hidden=(6,), dropout=0.1, preprocess=Standardise.from_data(X), freeze_backbone=True)
        model.calibration = BeliefTemperature([2.0, 3.0])
        model.notes = {"trained on": "nothing", "numbers": [1, 2]}
        return model.eval()

    def test_everything_comes_back(self, tmp_path):
        model = self.full()
        assert model.save(tmp_path / "new" / "run") == tmp_path / "new" / "run"
        again = RandomSetNetwork.load(tmp_path / "new" / "run")
        assert torch.equal(again.predict(X).mass, model.predict(X).mass)
        assert again.budget == model.budget
        assert again.notes == model.notes
        assert again.backbone_frozen
        assert not again.training
        assert isinstance(again.calibration, BeliefTemperature)
        assert Budget.load(tmp_path / "new" / "run" / "budget.json") == BUDGET

    def test_versions_are_noted(self, tmp_path):
        with safe_open(str(self.full().save(tmp_path) / "model.safetensors"), "pt") as file:
            header = json.loads(file.metadata()["model"])
        assert header["versions"]["torch"] == torch.__version__
        assert header["model"]["budget"]["classes"] == ["cat", "dog", "car"]

    @pytest.mark.parametrize("name", ["small_cnn", "resnet", "wide_resnet"])
    def test_our_backbones_need_no_help(self, name, tmp_path):
        options = {
            "small_cnn": {"image_size": 8},
            "resnet": {"width": 4},
            "wide_resnet": {"depth": 10, "widen": 1},
        }
        backbone = backbones.build(name, in_channels=1, **options[name])
        model = RandomSetNetwork(backbone, BUDGET).eval()
        assert torch.equal(RandomSetNetwork.load(model.save(tmp_path))(IMAGES), model(IMAGES))

    def test_foreign_parts_are_asked_for(self, tmp_path):
        model = RandomSetNetwork(nn.Linear(4, 8), BUDGET, preprocess=nn.BatchNorm1d(4)).eval()
        model.save(tmp_path)
        with pytest.raises(RandomSetError, match="preprocess="):
            RandomSetNetwork.load(tmp_path, backbone=nn.Linear(4, 8))
        with pytest.raises(RandomSetError, match=r"Linear.*backbone="):
            RandomSetNetwork.load(tmp_path, preprocess=nn.BatchNorm1d(4))
        again = RandomSetNetwork.load(tmp_path, nn.Linear(4, 8), nn.BatchNorm1d(4))
        assert torch.equal(again(X), model(X))
        with pytest.raises(FileFormatError, match=r"do not fit.*architecture"):
            RandomSetNetwork.load(tmp_path, nn.Linear(5, 8), nn.BatchNorm1d(4))

    def test_shared_weights(self, tmp_path):
        layer = nn.Linear(4, 4)
        model = RandomSetNetwork(nn.Sequential(layer, nn.ReLU(), layer), BUDGET)
        model.save(tmp_path)
        again = RandomSetNetwork.load(tmp_path, nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
        assert torch.equal(again(X), model(X))

    def test_a_failed_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        self.full().save(tmp_path)
        before = (tmp_path / "model.safetensors").read_bytes()

        def broken(*arguments, **options):
            raise OSError("no space left on device")

        monkeypatch.setattr("safetensors.torch.save_file", broken)
        with pytest.raises(OSError, match="no space"):
            network().save(tmp_path)
        assert (tmp_path / "model.safetensors").read_bytes() == before
        assert sorted(p.name for p in tmp_path.iterdir()) == ["budget.json", "model.safetensors"]

    def test_what_cannot_be_read(self, tmp_path):
        with pytest.raises(FileFormatError, match="no model here"):
            RandomSetNetwork.load(tmp_path)
        path = tmp_path / "model.safetensors"
        self.full().save(tmp_path)
        whole = path.read_bytes()
        for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(FileFormatError, match="damaged"):
                RandomSetNetwork.load(tmp_path)
        save_file({"a": torch.zeros(1)}, path)
        with pytest.raises(FileFormatError, match="does not hold a model"):
            RandomSetNetwork.load(tmp_path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 2}, "newer version of randomset"),
            ({"format": "x"}, "does not hold a model"),
            ({"options": None}, "cannot build the model"),
            ({"in_features": "8"}, "does not match its weights"),
            ({"backbone": {"name": "vgg", "options": {}}}, "unknown backbone"),
            ({"backbone": {"name": "mlp", "options": {"code": "import os"}}}, "invalid options"),
            ({"backbone": {"name": "mlp", "options": {"in_features": 5, "widths": [8]}}}, "do not fit"),
            (
                {"calibration": {"kind": "os.system", "temperature": [1]}},
                "unknown calibration in the file",
            ),
            ({"calibration": {"kind": "BeliefTemperature", "temperature": [-1]}}, "calibration"),
            ({"budget": {"classes": []}}, "budget"),
            ({"notes": 3}, "cannot build the model"),
        ],
    )
    def test_a_header_that_lies(self, tmp_path, change, message):
        path = self.full().save(tmp_path) / "model.safetensors"
        rewrite_header(path, lambda header: changed(header, change))
        with pytest.raises(RandomSetError, match=message):
            RandomSetNetwork.load(tmp_path)

    def test_pickling_and_copies(self):
        model = self.full()
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again.predict(X).mass, model.predict(X).mass)
