"""Files of networks: everything comes back, and what cannot be read is refused."""

import json
import pickle

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import randomset as rs
from randomset import Budget, RandomSetNetwork, backbones
from randomset.backbones import Standardise
from randomset.errors import FileFormatError, RandomSetError
from randomset.evaluation import evaluate
from randomset.models import (
    BeliefTemperature,
    Classifier,
    Ensemble,
    LaplaceBridge,
    Prediction,
    Softmax,
    classifier_class,
    load,
    methods,
    register,
)
from randomset.models import load as load_model
from randomset.models.calibration import calibration_from_spec
from randomset.models.storage import _CLASSES
from randomset.training import TrainConfig, train
from tests.models.conftest import BUDGET, FEATURES, IMAGES, X, Y, data, network


def rewrite_header(path, change):
    with safe_open(str(path), "pt") as file:
        header = json.loads(file.metadata()["model"])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(state, path, {"model": json.dumps(change(header))})


def changed(header, change):
    """Change a field of the header, or of the description of the model."""
    if set(change) <= {"format", "version", "notes"}:
        return {**header, **change}
    return {**header, "model": {**header["model"], **change}}


class TestFiles:
    def full(self):
        model = network(
            hidden=(6,), dropout=0.1, preprocess=Standardise.from_data(FEATURES), freeze_backbone=True
        )
        model.calibration = BeliefTemperature([2.0, 3.0])
        model.notes = {"trained on": "nothing", "numbers": [1, 2]}
        return model.eval()

    def test_everything_comes_back(self, tmp_path):
        model = self.full()
        assert model.save(tmp_path / "new" / "run") == tmp_path / "new" / "run"
        again = RandomSetNetwork.load(tmp_path / "new" / "run")
        assert torch.equal(again.predict(FEATURES).mass, model.predict(FEATURES).mass)
        assert again.budget == model.budget
        assert again.notes == model.notes
        assert again.backbone_frozen
        assert not again.training
        assert isinstance(again.calibration, BeliefTemperature)
        assert Budget.load(tmp_path / "new" / "run" / "budget.json") == BUDGET

    def test_versions_are_stored(self, tmp_path):
        with safe_open(str(self.full().save(tmp_path) / "model.safetensors"), "pt") as file:
            header = json.loads(file.metadata()["model"])
        assert header["versions"]["torch"] == torch.__version__
        assert header["model"]["budget"]["classes"] == ["cat", "dog", "car"]

    @pytest.mark.parametrize("name", ["small_cnn", "resnet", "wide_resnet"])
    def test_library_backbones_are_rebuilt(self, name, tmp_path):
        options = {
            "small_cnn": {"image_size": 8},
            "resnet": {"width": 4},
            "wide_resnet": {"depth": 10, "widen": 1},
        }
        backbone = backbones.build(name, in_channels=1, **options[name])
        model = RandomSetNetwork(backbone, BUDGET).eval()
        assert torch.equal(RandomSetNetwork.load(model.save(tmp_path))(IMAGES), model(IMAGES))

    def test_backbones_of_the_user_must_be_passed(self, tmp_path):
        model = RandomSetNetwork(nn.Linear(4, 8), BUDGET, preprocess=nn.BatchNorm1d(4)).eval()
        model.save(tmp_path)
        with pytest.raises(RandomSetError, match="preprocess="):
            RandomSetNetwork.load(tmp_path, backbone=nn.Linear(4, 8))
        with pytest.raises(RandomSetError, match=r"Linear.*backbone="):
            RandomSetNetwork.load(tmp_path, preprocess=nn.BatchNorm1d(4))
        again = RandomSetNetwork.load(tmp_path, nn.Linear(4, 8), nn.BatchNorm1d(4))
        assert torch.equal(again(FEATURES), model(FEATURES))
        with pytest.raises(FileFormatError, match=r"do not fit.*architecture"):
            RandomSetNetwork.load(tmp_path, nn.Linear(5, 8), nn.BatchNorm1d(4))

    def test_shared_weights(self, tmp_path):
        layer = nn.Linear(4, 4)
        model = RandomSetNetwork(nn.Sequential(layer, nn.ReLU(), layer), BUDGET)
        model.save(tmp_path)
        again = RandomSetNetwork.load(tmp_path, nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
        assert torch.equal(again(FEATURES), model(FEATURES))

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

    def test_unreadable_files(self, tmp_path):
        with pytest.raises(FileFormatError, match="no model found"):
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
            ({"calibration": {"kind": "os.system", "temperature": [1]}}, "unknown calibration in the file"),
            ({"calibration": {"kind": "BeliefTemperature", "temperature": [-1]}}, "calibration"),
            ({"budget": {"classes": []}}, "budget"),
            ({"notes": 3}, "cannot build the model"),
        ],
    )
    def test_invalid_headers(self, tmp_path, change, message):
        path = self.full().save(tmp_path) / "model.safetensors"
        rewrite_header(path, lambda header: changed(header, change))
        with pytest.raises(RandomSetError, match=message):
            RandomSetNetwork.load(tmp_path)

    def test_pickling_and_copies(self):
        model = self.full()
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again.predict(FEATURES).mass, model.predict(FEATURES).mass)

    def test_a_model_of_another_class(self, tmp_path):
        Softmax(backbones.mlp(4, (8,)), 3).save(tmp_path)
        assert isinstance(Classifier.load(tmp_path), Softmax)
        with pytest.raises(RandomSetError, match=r"another class: Softmax.*expected RandomSetNetwork"):
            RandomSetNetwork.load(tmp_path)


def write_earlier(model, folder, key, header):
    """Write a model with the header that earlier versions wrote."""
    folder.mkdir(exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors", {key: json.dumps(header)})


def write_baseline(model, folder, description):
    notes = {"classes": ["cat", "dog", "car"]}
    header = {"format": "randomset.rival", "version": 1, "model": description, "notes": notes}
    write_earlier(model, folder, "rival", header)


class TestEarlierVersions:
    """Files of versions before all models shared a format: headers "rival" and "network"."""

    SOFTMAX = {  # noqa: RUF012
        "method": "softmax",
        "backbone": {"name": "mlp", "options": {"in_features": 4, "widths": [8], "dropout": 0.0}},
        "num_classes": 3,
        "channels": None,
        "options": {},
    }

    def softmax(self, seed=0, **options):
        torch.manual_seed(seed)
        return Softmax(backbones.mlp(4, (8,)), 3, **options).eval()

    def same_model(self, folder, model):
        again = load_model(folder)
        assert type(again) is type(model)
        assert again.classes == ("cat", "dog", "car")
        assert torch.equal(again.predict(FEATURES).probabilities, model.predict(FEATURES).probabilities)
        return again

    def test_a_softmax_network(self, tmp_path):
        model = self.softmax()
        model.temperature.fill_(1.7)
        write_baseline(model, tmp_path, self.SOFTMAX)
        again = self.same_model(tmp_path, model)
        assert torch.equal(again.temperature, model.temperature)

    def test_a_softmax_network_with_preprocessing(self, tmp_path):
        model = self.softmax(preprocess=Standardise(torch.ones(4), torch.full((4,), 2.0)))
        write_baseline(model, tmp_path, self.SOFTMAX | {"channels": 4})
        again = self.same_model(tmp_path, model)
        assert isinstance(again.preprocess, Standardise)

    def test_an_ensemble(self, tmp_path):
        model = Ensemble([self.softmax(seed) for seed in range(3)])
        write_baseline(model, tmp_path, {"method": "ensemble", "members": [self.SOFTMAX] * 3})
        again = self.same_model(tmp_path, model)
        assert len(again.members) == 3

    @pytest.mark.parametrize("structure", ["kron", "full"])
    def test_a_laplace_bridge(self, tmp_path, structure):
        model = LaplaceBridge(self.softmax(), structure, 20).eval()
        model.fit_posterior([(FEATURES, torch.arange(10) % 3)])
        options = {"structure": structure, "samples": 20}
        description = {"method": "laplace-bridge", "network": self.SOFTMAX, "options": options}
        write_baseline(model, tmp_path, description)
        again = self.same_model(tmp_path, model)
        assert again.prior_precision == model.prior_precision

    @pytest.mark.parametrize("kind", [None, "BeliefTemperature", "PignisticTemperature"])
    def test_a_random_set_network(self, tmp_path, kind):
        model = network(
            hidden=(6,), dropout=0.1, preprocess=Standardise.from_data(FEATURES), freeze_backbone=True
        )
        calibration = None if kind is None else {"kind": kind, "temperature": [2.0]}
        model.calibration = calibration_from_spec(calibration)
        header = {
            "format": "randomset.network",
            "version": 1,
            "budget": json.loads(BUDGET.to_json()),
            "backbone": model.backbone.spec,
            "backbone_class": "MLP",
            "replaced_layer": None,
            "head": {"in_features": 8, "hidden": [6], "dropout": 0.1},
            "preprocess": "Standardise",
            "calibration": calibration,
            "frozen": True,
            "notes": {"trained on": "nothing"},
            "versions": {"randomset": "0.1.0"},
        }
        write_earlier(model, tmp_path, "network", header)
        if kind is not None:  # the state held the temperature alone
            with safe_open(str(tmp_path / "model.safetensors"), "pt") as file:
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            del state["calibration.kind"]
            save_file(state, tmp_path / "model.safetensors", {"network": json.dumps(header)})
        again = load_model(tmp_path)
        assert isinstance(again, RandomSetNetwork)
        assert torch.equal(again.predict(FEATURES).mass, model.predict(FEATURES).mass)
        assert type(again.calibration) is type(model.calibration)
        assert (again.notes, again.budget, again.backbone_frozen) == (header["notes"], BUDGET, True)

    def test_saved_again_it_has_the_current_format(self, tmp_path):
        model = self.softmax()
        write_baseline(model, tmp_path / "old", self.SOFTMAX)
        load_model(tmp_path / "old").save(tmp_path / "new")
        with safe_open(str(tmp_path / "new" / "model.safetensors"), "pt") as file:
            (key,) = file.metadata()
            header = json.loads(file.metadata()["model"])
        assert (key, header["format"], header["version"]) == ("model", "randomset.model", 1)
        self.same_model(tmp_path / "new", model)


class TestBaselines:
    def test_files_that_are_not_models(self, tmp_path):
        with pytest.raises(RandomSetError, match="no model found"):
            load_model(tmp_path)
        (tmp_path / "model.safetensors").write_bytes(b"hello")
        with pytest.raises(RandomSetError, match="safetensors"):
            load_model(tmp_path)

    def test_invalid_headers(self, tmp_path):
        from safetensors.torch import save_file

        for header in ("{}", "[]", '{"format": "randomset.rival", "version": 1, "model": {"method": "x"}}'):
            save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"rival": header})
            with pytest.raises(RandomSetError, match=r"cannot build the model|does not hold a model"):
                load_model(tmp_path)

    def test_a_backbone_of_the_users_own(self, tmp_path):
        model = Softmax(torch.nn.Linear(2, 4), 3, in_features=4).eval()
        model.save(tmp_path)
        with pytest.raises(RandomSetError, match=r"not one of randomset.backbones; got Linear.*backbone=…"):
            load_model(tmp_path)
        again = load_model(tmp_path, backbone=torch.nn.Linear(2, 4))
        inputs = torch.randn(5, 2)
        assert torch.equal(again.predict(inputs).probabilities, model.predict(inputs).probabilities)

    @pytest.mark.parametrize("structure", ["kron", "full"])
    def test_a_posterior_is_kept(self, tmp_path, structure):
        torch.manual_seed(0)
        bridge = LaplaceBridge(Softmax(backbones.mlp(2, (8,)), 3).eval(), structure)
        inputs = torch.randn(50, 2)
        bridge.fit_posterior([(inputs, torch.arange(50) % 3)])
        bridge.save(tmp_path)
        assert torch.equal(
            load_model(tmp_path).predict(inputs).probabilities, bridge.predict(inputs).probabilities
        )


LIBRARY = (
    "rsnn",
    *("ensemble", "epinet", "evidential", "fsvi", "laplace-bridge", "mc-dropout", "random-set-ensemble"),
    *("softmax", "temperature", "wrapped"),
)


class TestNames:
    def test_of_the_library(self):
        assert methods() == LIBRARY

    @pytest.mark.parametrize("name", LIBRARY)
    def test_a_name_stands_for_a_class(self, name):
        found = classifier_class(name)
        assert issubclass(found, Classifier)
        assert found.method == name

    def test_unknown_names(self):
        with pytest.raises(RandomSetError, match=r"unknown method; got magic; expected one of rsnn, "):
            classifier_class("magic")

    def test_names_of_the_library_are_taken(self):
        with pytest.raises(RandomSetError, match="already registered; got softmax"):

            @register("softmax")
            class Another(Softmax):
                pass

        assert classifier_class("softmax") is Softmax

    def test_a_class_of_a_user_can_be_defined_again(self):
        """As in a notebook, where a cell is run twice."""
        for _ in range(2):

            @register("mine")
            class Mine(Softmax):
                pass

            assert classifier_class("mine") is Mine


@pytest.fixture
def cosine():
    """A baseline of a user: classes are directions, and far from all of them is uncertain."""

    @register("cosine")
    class Cosine(Classifier):
        def __init__(self, backbone, num_classes, *, scale=10.0, **options):
            super().__init__(backbone, num_classes, **options)
            self.directions = nn.Parameter(torch.randn(self.num_classes, self.in_features))
            self.scale = scale

        @property
        def options(self):
            return {"scale": self.scale}

        def forward(self, inputs):
            features = nn.functional.normalize(self.features(inputs), dim=1)
            return self.scale * features @ nn.functional.normalize(self.directions, dim=1).T

        def predict_batch(self, inputs):
            logits = self(inputs)
            return Prediction(self.probabilities(logits), {"distance": 1 - logits.amax(1) / self.scale})

    yield Cosine
    del _CLASSES["cosine"]
    assert methods() == LIBRARY


UNKNOWN = 8 * torch.nn.functional.normalize(
    torch.randn(60, 2, generator=torch.Generator().manual_seed(7)), dim=1
)


class TestOutside:
    """Nothing in the library knows its name, and everything works with it."""

    @pytest.mark.slow
    def test_from_training_to_evaluation(self, cosine, tmp_path):
        assert "cosine" in methods()
        config = TrainConfig(method="cosine", epochs=20).checked()
        names = ("a", "b", "c")
        result = train(config, X, Y, names, data(60, seed=1), out=tmp_path, progress=False)
        model = result.model
        assert isinstance(model, cosine)
        assert not model.training
        assert model.classes == names
        assert result.fit.last["val_accuracy"] > 0.8
        model.notes = {"trained on": "clouds"}
        model.save(tmp_path)
        again = load(tmp_path)
        assert type(again) is cosine
        assert again.scale == 10.0
        assert (again.classes, again.notes) == (names, model.notes)
        test = data(90, seed=2)
        found, expected = again.predict(test[0]), model.predict(test[0])
        assert torch.equal(found.probabilities, expected.probabilities)
        assert torch.equal(found.scores["distance"], expected.scores["distance"])
        numbers = evaluate(again, test, {"far": UNKNOWN})
        assert numbers["test"]["accuracy"] > 0.8
        assert set(numbers["ood"]["far"]["scores"]) == {"entropy", "1 - maximum", "distance", "rank average"}
        assert numbers.classes == names

    def test_trained_by_fit(self, cosine, tmp_path):
        torch.manual_seed(0)
        model = cosine(backbones.mlp(2, (16,)), 3, scale=5.0)
        report = rs.fit(
            model, (X, Y), data(60, seed=1), epochs=20, batch_size=30, out=tmp_path, progress=False
        )
        assert report.last["val_accuracy"] > 0.8
        again = load(tmp_path)
        assert again.scale == 5.0
        assert torch.equal(again.predict(X).probabilities, model.predict(X).probabilities)

    def test_resumed(self, cosine, tmp_path):
        config = TrainConfig(method="cosine", epochs=2)
        first = train(config, X, Y, ("a", "b", "c"), out=tmp_path, progress=False).model
        again = train(config, X, Y, ("a", "b", "c"), out=tmp_path, resume=True, progress=False).model
        assert torch.equal(first.predict(X).probabilities, again.predict(X).probabilities)

    def test_as_a_member_of_an_ensemble(self, cosine, tmp_path):
        members = [cosine(backbones.mlp(2, (8,)), 3, scale=scale) for scale in (5.0, 9.0)]
        model = rs.models.Ensemble(members)
        model.save(tmp_path)
        again = load(tmp_path)
        assert [member.scale for member in again.members] == [5.0, 9.0]
        assert torch.equal(again.predict(X).probabilities, model.predict(X).probabilities)

    def test_a_file_whose_class_is_not_registered(self, cosine, tmp_path):
        cosine(backbones.mlp(2, (8,)), 3).save(tmp_path)
        del _CLASSES["cosine"]
        try:
            with pytest.raises(RandomSetError, match="unknown method; got cosine"):
                load(tmp_path)
        finally:
            _CLASSES["cosine"] = cosine


def test_what_a_test_registers_is_gone():
    assert methods() == LIBRARY
