"""Predictions for whole data sets: one pass, labels by name, errors with their place."""

import datasets
import numpy as np
import pandas
import pytest
import torch
from torch.utils.data import TensorDataset

from randomset import backbones
from randomset.backbones.inputs import InputSpec
from randomset.errors import InvalidBeliefError, LabelError, RandomSetError
from randomset.evaluation import as_predictor, evaluate
from randomset.models import Ensemble, Softmax
from tests.evaluation.conftest import KINDS, TEST, UNKNOWN, Points, assert_alike, model, network, points


class TestMistakes:
    def test_a_nan_is_located(self):
        inputs = points(100)[0].clone()
        inputs[57] = torch.nan
        with pytest.raises(InvalidBeliefError, match=r"on test; .*input 57 \(batch 1, index 7\)"):
            evaluate(model, (inputs, points(100)[1]), batch_size=50)
        with pytest.raises(InvalidBeliefError, match=r"on test; got nan.*input 57 \(batch 1, index 7\)"):
            evaluate(network(), (inputs, points(100)[1]), batch_size=50)


def test_data_frames_are_read_by_the_names_of_their_columns():
    inputs, labels = points(60)
    names = [f"x{number}" for number in range(inputs.shape[1])]
    frame = pandas.DataFrame(inputs.numpy(), columns=names)
    found = network()
    found.notes = InputSpec(tuple(inputs.shape[1:]), columns=tuple(names)).to_notes()
    far = pandas.DataFrame(UNKNOWN.numpy(), columns=names)
    expected = evaluate(found, (inputs, labels), {"far": UNKNOWN})
    result = evaluate(found, (frame[names[::-1]], labels), {"far": far[names[::-1]]})
    for data in ("test", "far"):
        assert torch.equal(result.predictions[data].probabilities, expected.predictions[data].probabilities)


class TestPasses:
    def test_one_pass_over_each_set(self):
        seen = []

        def counting(inputs):
            seen.append(len(inputs))
            return model(inputs)

        evaluate(counting, TEST, {"noise": UNKNOWN}, validation=points(60, seed=3), batch_size=1000)
        assert seen == [120, 50, 60]


class TestNames:
    """Labels mean what their names say, wherever the data come from."""

    def test_of_data_sets_in_python(self):
        class Named(Points):
            classes = ("c", "a", "b")

        names = np.array(Named.classes)[TEST[1].numpy()]
        found = network()
        expected = (np.array(found.predict(TEST[0]).label_names) == names).mean()
        assert evaluate(found, Named())["test"]["accuracy"] == pytest.approx(expected)
        Named.classes = ("x", "y", "z")
        assert evaluate(found, Named())["remarks"] == [
            "test: its class names differ from the model's; classes are matched by order"
        ]
        Named.classes = ("x", "y")
        with pytest.raises(LabelError, match="classes of test do not match the model's; got x, y"):
            evaluate(found, Named())

    def test_of_hugging_face(self):
        features = datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
        )
        rows = {"text": ["good", "bad", "good good"], "label": [1, 0, 1]}
        model = as_predictor(lambda words: [[0.9, 0.1] if "good" in w else [0.1, 0.9] for w in words])
        table = datasets.Dataset.from_dict(rows, features)
        assert evaluate(model, table, classes=["pos", "neg"])["test"]["accuracy"] == 1
        words = datasets.Dataset.from_dict({"text": rows["text"], "label": ["pos", "neg", "pos"]})
        assert evaluate(model, words, classes=["pos", "neg"])["test"]["accuracy"] == 1

    def test_as_many_names_as_outputs(self):
        with pytest.raises(RandomSetError, match="3 outputs for 2 names"):
            evaluate(model, TEST, classes=["a", "b"])


class TestNamesInFiles:
    def test_classes_are_matched_by_name(self, tmp_path):
        """The file numbers its classes in another order than the network."""
        inputs, labels = TEST
        names = np.array(["c", "a", "b"])
        np.savez(tmp_path / "a.npz", features=inputs.numpy(), labels=names[labels.numpy()])
        found = network()
        result = evaluate(found, tmp_path / "a.npz")
        right = np.array(found.predict(inputs).label_names) == names[labels.numpy()]
        assert result["test"]["accuracy"] == pytest.approx(right.mean())
        np.savez(
            tmp_path / "b.npz", features=inputs.numpy(), labels=np.array(["x", "a", "b"])[labels.numpy()]
        )
        with pytest.raises(LabelError, match="unknown class; got x"):
            evaluate(found, tmp_path / "b.npz")

    def test_classes_of_a_baseline_are_matched_by_name(self, tmp_path):
        inputs, labels = TEST
        names = np.array(["c", "a", "b"])
        np.savez(tmp_path / "a.npz", features=inputs.numpy(), labels=names[labels.numpy()])
        torch.manual_seed(0)
        found = Softmax(backbones.mlp(2, (8,)), ["a", "b", "c"])
        result = evaluate(found, tmp_path / "a.npz")
        right = np.array(found.classes)[found.predict(inputs).labels.numpy()] == names[labels.numpy()]
        assert result["test"]["accuracy"] == pytest.approx(right.mean())
        assert result.classes == ("a", "b", "c")


def softmax(seed=0):
    torch.manual_seed(seed)
    return Softmax(backbones.mlp(2, (8,)), 3).eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [network, softmax, lambda: Ensemble([softmax(0), softmax(1)])],
    ids=["rsnn", "softmax", "ensemble"],
)
def test_two_processes_give_the_same_numbers_as_one(make):
    model, data = make(), TensorDataset(*points(101))
    one = evaluate(model, data)
    two = evaluate(model, data, devices=2, batch_size=16)
    for name, score in one.predictions["test"].scores.items():
        assert torch.allclose(score, two.predictions["test"].scores[name], atol=1e-6), name
    assert torch.equal(one.labels["test"], two.labels["test"])
    assert_alike(two["test"], one["test"])


def test_unsupported_on_two_devices():
    with pytest.raises(RandomSetError, match="support only one device; got devices=2"):
        evaluate(network(), TEST, devices=2, timing=True)
    with pytest.raises(RandomSetError, match="cannot distribute test over devices"):
        evaluate(network(), KINDS["batches"](), devices=2)
