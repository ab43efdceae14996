"""The result of an evaluation, and its threshold: tables, files, nothing is lost."""

import json

import pytest
import torch

from randomset import backbones
from randomset.data import load_source
from randomset.errors import RandomSetError
from randomset.evaluation import Evaluation, Threshold, evaluate
from randomset.models import Softmax
from randomset.models import load as load_model
from tests.evaluation.clouds import (
    image_network,
    model,
    points,
)


@pytest.mark.slow
class TestResult:
    @pytest.fixture(scope="class")
    @classmethod
    def result(cls):
        return evaluate(
            image_network(),
            load_source("digits").part(torch.arange(300, 1797)),
            {"noise | strange/name": torch.rand(40, 1, 8, 8)},
            validation=load_source("digits").part(torch.arange(300)),
            noise=(0.3,),
            rotation=((-30, 30),),
            attacks=(0.0, 0.05),
            samples=20,
            timing=True,
        )

    def test_a_folder_in_the_home_folder(self, result, tmp_path, monkeypatch):
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

    def test_tables(self, result):
        titles = [table.title for table in result.tables]
        assert titles == [
            "Test data, 1497 inputs",
            "Out-of-distribution detection",
            "Deployment threshold",
            "Selective prediction",
            "Set-valued decisions",
            "Conformal sets",
            "Noise, 20 test inputs",
            "Rotation, 20 test inputs",
            "Attacks, 20 test inputs",
            "Prediction time, including uncertainty scores",
        ]
        for table in result.tables:
            assert all(len(row) == len(table.columns) for row in table.rows)
        text = result.to_markdown()
        assert f"| accuracy | {100 * result['test']['accuracy']:.2f} % |" in text
        assert "noise \\| strange/name (40)" in text
        assert str(result) == result._repr_markdown_() == text
        assert "1497 test inputs" in repr(result)
        assert result.summary.startswith("On 1497 test inputs: accuracy")

    def test_attacks_of_no_size_change_nothing(self, result):
        clean = next(row["accuracy"] for row in result["attacks"] if row["attack"] == "none")
        rows = [row for row in result["attacks"] if row["epsilon"] == 0 and row["attack"] != "none"]
        assert len(rows) == 7
        assert {row["accuracy"] for row in rows} == {clean}
        worst = {
            row["epsilon"]: row["accuracy"] for row in result["attacks"] if row["attack"] == "all of them"
        }
        each = [row["accuracy"] for row in result["attacks"] if row["epsilon"] == 0.05]
        assert worst[0.05] <= min(each)

    def test_levels(self, result):
        assert [row["level"] for row in result["noise"]] == [None, 0.3]
        assert [row["level"] for row in result["rotation"]] == [None, [-30, 30]]
        assert result["noise"][0] == result["rotation"][0]

    def test_time(self, result):
        timing = result["timing"]
        for name in ("latency_ms", "throughput", "ratio_single", "ratio_batch"):
            assert 0 < timing[name]["low"] <= timing[name]["median"] <= timing[name]["high"]

    def test_json_has_no_nan(self, tmp_path):
        """A class that does not occur has no coverage."""
        inputs, labels = points(30)
        some = labels != 2
        result = evaluate(model, (inputs[some], labels[some]), validation=points(seed=4))
        text = result.to_json(tmp_path / "a.json")
        assert "NaN" not in text
        assert json.loads(text)["conformal"]["rows"][0]["class_coverage"][2] is None

    def test_what_was_not_measured(self, result, tmp_path):
        with pytest.raises(KeyError, match="was not evaluated"):
            result["speed"]
        assert "noise" in result
        assert "speed" not in result
        with pytest.raises(RandomSetError, match="cannot be read"):
            Evaluation.load(tmp_path)
        (tmp_path / "evaluation.json").write_text("[]")
        with pytest.raises(RandomSetError, match="with format 'list'"):
            Evaluation.load(tmp_path)


class TestThresholdFile:
    def test_round_trip(self, tmp_path):
        assert Threshold.load(tmp_path) is None
        threshold = Threshold("mass on Θ", 0.25, 0.9)
        threshold.save(tmp_path)
        assert Threshold.load(tmp_path) == threshold

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "randomset.threshold", "version": 1}'])
    def test_damaged(self, tmp_path, content):
        (tmp_path / "threshold.json").write_text(content)
        message = r"(threshold cannot be read|invalid threshold file).*threshold\.json"
        with pytest.raises(RandomSetError, match=message):
            Threshold.load(tmp_path)
