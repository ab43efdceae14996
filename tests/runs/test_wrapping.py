"""Run.wrap: the run of a softmax network as a random-set run with the same split and labels."""

import json

import pytest
import torch

from randomset.errors import RandomSetError
from randomset.models.wrapped import WrappedClassifier
from randomset.runs import Run
from randomset.training.config import TrainConfig
from tests.runs.conftest import SMALL


@pytest.fixture(scope="module")
def softmax(trained):
    """A softmax run on the photos."""
    config = TrainConfig(source=str(trained / "photos"), method="softmax", **SMALL)
    return Run.train(config, trained / "softmax")


def test_the_split_and_the_labels_stay(softmax, tmp_path):
    wrapped = Run.wrap(softmax.folder, tmp_path / "wrapped")
    assert wrapped.is_trained
    assert wrapped.config.method == "wrapped"
    assert isinstance(wrapped.model, WrappedClassifier)
    splits = [json.loads((run.folder / "split.json").read_text()) for run in (softmax, wrapped)]
    assert splits[0] == splits[1]
    test = softmax.data().test
    answer = wrapped.predict(test)
    assert torch.equal(answer.labels, softmax.predict(test).labels)
    assert answer.lower is not None


def test_a_reliability_is_required(softmax, tmp_path):
    with pytest.raises(RandomSetError, match="needs a reliability; got none"):
        Run.wrap(softmax.folder, tmp_path / "wrapped", reliability="none")
    assert not (tmp_path / "wrapped" / "model.safetensors").exists()
