"""Many runs: what is missing is trained, what was measured is read."""

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from randomset.data import load_source
from randomset.data.splits import fingerprint
from randomset.errors import FileFormatError, RandomSetError, ShapeError
from randomset.evaluation import Evaluation
from randomset.runs import Run, RunStore
from randomset.runs.store import MEASURED, check_data, check_settings, fingerprints, time_to_go
from randomset.training.config import TrainConfig
from tests.runs.conftest import SMALL

SOFTMAX = TrainConfig(source="digits", method="softmax", **SMALL)
TEMPERATURE = replace(SOFTMAX, method="temperature")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store with a softmax network and its temperature."""
    folder = tmp_path_factory.mktemp("store")
    np.savez(folder / "noise.npz", images=np.random.default_rng(0).random((30, 8, 8)))
    store = RunStore(folder)
    store.train([TEMPERATURE, SOFTMAX])
    return store


@pytest.fixture
def options(filled):
    contents = {"": fingerprint(load_source("digits")), "noise": "of noise"}
    return {"contents": contents, "ood": {"noise": str(filled.folder / "noise.npz")}}


class TestTraining:
    def test_places(self, filled):
        assert filled.run(SOFTMAX).folder == filled.folder / "softmax" / "seed-0"
        assert filled.complete_methods(1) == ["softmax", "temperature"]
        assert filled.complete_methods(2) == []

    def test_a_temperature_reuses_the_softmax_network(self, filled):
        """Although it was asked for first."""
        plain, scaled = (filled.run(config) for config in (SOFTMAX, TEMPERATURE))
        assert not (scaled.folder / "metrics.csv").exists()
        for name, tensor in plain.model.state_dict().items():
            if "temperature" not in name:
                assert tensor.equal(scaled.model.state_dict()[name]), name
        assert scaled.model.notes["seconds"] > plain.model.notes["seconds"]

    def test_what_is_there_is_not_trained_again(self, filled, monkeypatch):
        monkeypatch.setattr("randomset.runs.store.train_run", lambda *_, **__: pytest.fail("trained"))
        runs = filled.train([SOFTMAX, TEMPERATURE, SOFTMAX])
        assert [run.folder for run in runs] == [
            filled.run(config).folder for config in (SOFTMAX, TEMPERATURE, SOFTMAX)
        ]

    def test_order_resuming_and_time_to_go(self, tmp_path, monkeypatch, caplog):
        caplog.set_level("INFO", "randomset")
        calls = []

        def train(config, folder, *, resume, base):
            calls.append((config.method, config.seed, resume, base and base.parent.name))
            for name, text in (("test.json", "{}"), ("seconds.json", "120")):
                (folder / name).write_text(text)

        monkeypatch.setattr("randomset.runs.store.train_run", train)
        (tmp_path / "softmax" / "seed-1").mkdir(parents=True)
        SOFTMAX.save(tmp_path / "softmax" / "seed-1" / "config.json")  # as if it had been interrupted
        configs = [replace(config, seed=seed) for config in (TEMPERATURE, SOFTMAX) for seed in (0, 1)]
        RunStore(tmp_path).train(configs)
        assert calls == [
            ("softmax", 0, False, None),
            ("softmax", 1, True, None),
            ("temperature", 0, False, "softmax"),
            ("temperature", 1, False, "softmax"),
        ]
        assert caplog.messages[0] == "Model 1 of 4: softmax, seed 0"
        assert caplog.messages[1] == "Model 2 of 4: softmax, seed 1, about 6 min to go"

    def test_a_damaged_run_names_its_folder(self, tmp_path):
        folder = tmp_path / "softmax" / "seed-0"
        (folder / "checkpoints").mkdir(parents=True)
        SOFTMAX.save(folder / "config.json")
        (folder / "split.json").write_text("{}")
        with pytest.raises(FileFormatError, match=r"split.*To train it again, delete .*seed-0"):
            RunStore(tmp_path).train([SOFTMAX])

    def test_other_settings_and_data_are_rejected(self, filled):
        filled.check_same([SOFTMAX, TEMPERATURE], fingerprint(load_source("digits")))
        with pytest.raises(FileFormatError, match=r"different settings; got .*epochs 2 instead of 3"):
            filled.check_same([replace(SOFTMAX, epochs=3)])
        with pytest.raises(FileFormatError, match="the data have changed"):
            filled.check_same([SOFTMAX], "another fingerprint")


class TestMeasuring:
    @pytest.fixture(autouse=True)
    def not_measured_yet(self, filled):
        """The store is shared: what another test measured must not matter."""
        for folder in filled.folder.rglob(MEASURED):
            shutil.rmtree(folder)

    def test_once(self, filled, options, caplog):
        caplog.set_level("INFO", "randomset")
        run = filled.run(SOFTMAX)
        first = filled.evaluate(run, **options)
        assert Evaluation.load(run.folder / MEASURED)["test"] == first["test"]
        assert first["ood"]["noise"]["samples"] == 30
        assert caplog.messages == [f"Measuring {run.folder} …"]
        again = filled.evaluate(run, **options)
        assert again["test"] == first["test"]
        assert len(caplog.messages) == 1

    @pytest.mark.parametrize("change", ["contents", "seed", "samples", "figures", "damage"])
    def test_again_if_something_changed(self, filled, options, caplog, change):
        run = filled.run(SOFTMAX)
        filled.evaluate(run, **options)
        caplog.set_level("INFO", "randomset")
        drawn = []
        if change == "damage":
            (run.folder / MEASURED / "evaluation.json").write_text("{}")
        changes: dict[str, Any] = {
            "contents": {"contents": {**options["contents"], "noise": "other"}},
            "seed": {"seed": 1},
            "samples": {"ood_samples": 10},
            "figures": {"draw": lambda result, folder: drawn.append(folder)},
        }
        result = filled.evaluate(run, **{**options, **changes.get(change, {})})
        assert len(caplog.messages) == 1
        assert result["ood"]["noise"]["samples"] == (10 if change == "samples" else 30)
        assert drawn == ([run.folder / MEASURED / "figures"] if change == "figures" else [])

    def test_the_format_of_a_measurement_stays(self, filled, options):
        """The format of measured.json, key by key."""
        run = filled.run(SOFTMAX)
        filled.evaluate(run, **options)
        stored = json.loads((run.folder / MEASURED / "measured.json").read_text())
        assert stored == {
            **{"format": "randomset.measured", "version": 1, **options},
            **{"ood_samples": None, "seed": 0, "model": run.digest(), "figures": False},
        }

    def test_times_and_costs(self, filled):
        runs = {"softmax": filled.run(SOFTMAX)}
        path = filled.folder / "timing-0.json"
        first = filled.times(runs, path)
        assert first["softmax"] > 0
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "milliseconds": {"softmax": 12.5}}))
        assert filled.times(runs, path) == {"softmax": 12.5}
        path.write_text(json.dumps({**content, "models": {"softmax": "another"}}))
        assert filled.times(runs, path) != {"softmax": 12.5}
        costs = filled.costs(runs["softmax"])
        assert costs["parameters"] == sum(p.numel() for p in Run(runs["softmax"].folder).model.parameters())
        assert costs["seconds"] > 0

    def test_a_comparison(self, filled, options):
        comparison = filled.compare([SOFTMAX, TEMPERATURE], **options)
        values = json.loads(comparison.to_json())["values"]
        assert values["accuracy, %"]["softmax"] == values["accuracy, %"]["temperature"]
        assert set(values["one prediction, ms"]) == {"softmax", "temperature"}


def test_the_time_to_go():
    assert time_to_go(None) == ""
    assert time_to_go(3600) == ", about 60 min to go"


class TestSettings:
    def test_the_same(self, run):
        check_settings(run, run.config)
        check_settings(run, replace(run.config, backbone="auto"))

    def test_others(self, run):
        with pytest.raises(FileFormatError, match=r"different settings; got .*width 8 instead of None"):
            check_settings(run, replace(run.config, width=None))

    def test_data(self, run):
        with pytest.raises(FileFormatError, match="the data have changed since a run"):
            check_data(run, run.config, "another")
        check_data(run, replace(run.config, size=32), "another")  # which training itself compares
        (run.folder / "split.json").write_text("[]")
        check_data(run, run.config, "another")


class TestFingerprints:
    @pytest.fixture
    def files(self, tmp_path):
        draw = np.random.default_rng(0)
        np.savez(tmp_path / "noise.npz", images=draw.random((9, 8, 8)))
        np.savez(tmp_path / "table.npz", features=draw.random((9, 4)))
        np.savez(tmp_path / "sets.npz", features=draw.random((9, 4)), labels=np.ones((9, 3), int))
        return tmp_path

    def test_of_all_data(self, files):
        contents = fingerprints(TrainConfig(source="digits"), {"noise": str(files / "noise.npz")})
        assert set(contents) == {"", "noise"}
        assert contents[""] == "11c91b21a47c8aac"

    @pytest.mark.parametrize(
        ("name", "file", "error", "message"),
        [
            ("test", "noise.npz", RandomSetError, "this name is reserved"),
            ("table", "table.npz", ShapeError, "of a different kind than the training data"),
            ("nowhere", "nowhere.npz", FileFormatError, "no such data"),
        ],
    )
    def test_unusable_data(self, files, name, file, error, message):
        with pytest.raises(error, match=message):
            fingerprints(TrainConfig(source="digits"), {name: str(files / file)})

    def test_the_training_data_are_not_unknown(self):
        with pytest.raises(RandomSetError, match="the unknown data are the training data"):
            fingerprints(TrainConfig(source="digits"), {"self": "digits"})

    def test_set_valued_labels(self, files):
        with pytest.raises(RandomSetError, match="one class per sample"):
            fingerprints(TrainConfig(source=str(files / "sets.npz")), {})
