"""Training into a folder: what is stored, counted and cleaned up."""

import dataclasses
import json

import numpy as np
import pytest

from randomset import Budget
from randomset.errors import RandomSetError, RandomSetWarning
from randomset.runs import Run
from randomset.runs.training import seconds_of, train_run
from randomset.training.config import TrainConfig
from tests.runs.conftest import SMALL

DIGITS = TrainConfig(source="digits", **SMALL)


def test_a_training_that_fails_leaves_nothing(tmp_path):
    Budget.singletons("ab").save(tmp_path / "budget.json")
    with pytest.raises(RandomSetError, match="the classes of the budget differ from those of the data"):
        train_run(DIGITS, tmp_path / "run", budget=tmp_path / "budget.json")
    assert not (tmp_path / "run").exists()
    mask = np.eye(3, dtype=int)[np.arange(30) % 3] | np.eye(3, dtype=int)[0]
    np.savez(tmp_path / "sets.npz", features=np.random.default_rng(0).normal(size=(30, 4)), labels=mask)
    config = TrainConfig(source=str(tmp_path / "sets.npz"), method="softmax", **SMALL)
    with pytest.raises(RandomSetError, match="set-valued labels"):
        train_run(config, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_budget_is_used(tmp_path):
    classes = [str(digit) for digit in range(10)]
    Budget.from_sets([("3", "8")], classes).save(tmp_path / "own.json")
    train_run(DIGITS, tmp_path / "run", budget=tmp_path / "own.json")
    assert Budget.load(tmp_path / "run" / "budget.json") == Budget.load(tmp_path / "own.json")


def test_set_valued_labels_are_met_by_any_of_their_classes(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 4))
    np.savez(tmp_path / "sets.npz", features=rows, labels=np.ones((60, 3), dtype=int))
    with (
        pytest.warns(RandomSetWarning, match=r"inputs was chosen on 6 validation samples, fewer than 20"),
        pytest.warns(RandomSetWarning, match="calibrated on 6 validation samples"),
    ):
        train_run(TrainConfig(source=str(tmp_path / "sets.npz"), **SMALL), tmp_path / "run")
    test = json.loads((tmp_path / "run" / "test.json").read_text())
    assert (test["samples"], test["accuracy"]) == (12, 1.0)


def test_without_validation_samples_there_is_no_threshold(tmp_path):
    config = TrainConfig(source="digits", method="softmax", validation=0.0, **SMALL)
    train_run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "threshold.json").exists()
    assert (tmp_path / "run" / "test.json").exists()


def test_reliability_is_reported_and_a_threshold_may_use_it(tmp_path, caplog):
    caplog.set_level("INFO", "randomset")
    run = Run.train(dataclasses.replace(DIGITS, reliability="auto"), tmp_path / "run")
    mean = json.loads((tmp_path / "run" / "test.json").read_text())["reliability"]
    assert 0.5 < mean <= 1
    assert f"mean reliability {mean:.3f}" in caplog.text
    found = run.predict("digits")
    assert found.reliability is not None
    run.evaluate(score="1 - reliability", sweeps=False, timing=False)
    threshold = Run(tmp_path / "run").threshold
    assert threshold is not None
    assert threshold.score == "1 - reliability"
    assert threshold.known_by(found.scores).float().mean() > 0.8


@pytest.mark.parametrize("content", [None, "", "[]", "-3", '"long"', "NaN"])
def test_seconds_that_were_not_recorded(tmp_path, content):
    if content is not None:
        (tmp_path / "seconds.json").write_text(content)
    assert seconds_of(tmp_path) is None
    (tmp_path / "seconds.json").write_text("12.5")
    assert seconds_of(tmp_path) == 12.5
