"""What may be compared, and what is rejected before any training."""

from dataclasses import replace

import numpy as np
import pytest

from randomset.errors import FileFormatError, RandomSetError, ShapeError
from randomset.runs.consistency import check_data, check_settings, fingerprints
from randomset.training.config import TrainConfig


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
            ("table", "table.npz", ShapeError, "of another kind than the training data"),
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
