"""Methods by name: those of the library, and one that is defined outside of it."""

import pytest
import torch
from torch import nn

import randomset as rs
from randomset import backbones
from randomset.errors import RandomSetError
from randomset.evaluation import evaluate
from randomset.models import Classifier, Prediction, Softmax, classifier_class, load, methods, register
from randomset.models.registry import _CLASSES
from randomset.training import TrainConfig, train
from tests.models.conftest import X, Y, data

LIBRARY = (
    "rsnn",
    *("ensemble", "epinet", "evidential", "fsvi", "laplace-bridge", "mc-dropout", "softmax", "temperature"),
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
