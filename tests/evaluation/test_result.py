"""The result of an evaluation, and its threshold: tables, files, nothing is lost."""

import json

import pytest
import torch

from randomset import backbones
from randomset.errors import RandomSetError
from randomset.evaluation import Evaluation, Threshold, evaluate
from randomset.models import Softmax
from randomset.models import load as load_model
from tests.evaluation.conftest import model, points


@pytest.mark.slow
class TestResult:
    def test_paths_in_the_home_folder(self, result, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        assert result.save("~/run")[0] == tmp_path / "run" / "evaluation.json"
        assert Evaluation.load("~/run").numbers.keys() == result.numbers.keys()
        threshold = Threshold("entropy", 0.5, 0.95)
        assert threshold.save("~/run") == tmp_path / "run" / "threshold.json"
        assert Threshold.load("~/run") == threshold
        Softmax(backbones.mlp(2, (8,)), 3).save("~/softmax")
        assert (tmp_path / "softmax").is_dir()
        assert isinstance(load_model("~/softmax"), Softmax)

    def test_everything_is_kept(self, result, tmp_path):
        written = result.save(tmp_path)
        assert [path.name for path in written] == ["evaluation.json", "evaluation.md", "scores.npz"]
        again = Evaluation.load(tmp_path)
        assert again.numbers == json.loads(json.dumps(result.numbers))
        assert again.to_markdown() == result.to_markdown() == (tmp_path / "evaluation.md").read_text()
        for name, prediction in result.predictions.items():
            other = again.predictions[name]
            assert torch.equal(prediction.probabilities, other.probabilities)
            assert torch.equal(prediction.lower, other.lower)
            assert list(prediction.scores) == list(other.scores)
            for score in prediction.scores:
                assert torch.equal(prediction.scores[score], other.scores[score])
        assert torch.equal(again.labels["test"], result.labels["test"])

    def test_as_a_table_of_inputs(self, result, tmp_path):
        import pandas

        frame = pandas.read_parquet(result.save_scores(tmp_path / "scores.parquet"))
        assert len(frame) == 1497 + 40 + 300
        test = frame[frame["set"] == "test"]
        assert (test["label"] == test["predicted"]).mean() == pytest.approx(result["test"]["accuracy"])
        assert test["entropy"].mean() == pytest.approx(result["test"]["scores"]["entropy"]["mean"], rel=1e-5)
        assert (frame[frame["set"] != "test"]["label"] == -1).sum() == 40
        with pytest.raises(
            RandomSetError, match=r"unsupported file type for scores; got .*; expected \.npz or \.parquet"
        ):
            result.save_scores(tmp_path / "scores.csv")

    def test_json_has_no_nan(self, tmp_path):
        """A class that does not occur has no coverage."""
        inputs, labels = points(30)
        some = labels != 2
        result = evaluate(model, (inputs[some], labels[some]), validation=points(seed=4))
        text = result.to_json(tmp_path / "a.json")
        assert "NaN" not in text
        assert json.loads(text)["conformal"]["rows"][0]["class_coverage"][2] is None

    def test_missing_sections(self, result, tmp_path):
        with pytest.raises(KeyError, match="was not evaluated"):
            result["speed"]
        assert "noise" in result
        assert "speed" not in result
        with pytest.raises(RandomSetError, match="cannot be read"):
            Evaluation.load(tmp_path)
        (tmp_path / "evaluation.json").write_text("[]")
        with pytest.raises(RandomSetError, match="with format 'list'"):
            Evaluation.load(tmp_path)
