"""The table of several methods: means, spread, and who leads."""

import csv
import io
import json
import math

import pytest
import torch

from randomset.errors import RandomSetError
from randomset.evaluation import evaluate
from randomset.evaluation.comparison import Column, Comparison


def numbers(shift, seed):
    """An evaluation of a model that is right more often the larger its shift."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(60) % 2
    inputs = torch.randn(60, 2, generator=generator)
    inputs[:, 0] += shift * (2 * labels - 1)
    model = lambda x: (torch.stack((-x[:, 0], x[:, 0]), 1).softmax(1), {"vacuity": x[:, 1] ** 2})  # noqa: E731
    unknown = torch.randn(30, 2, generator=generator)
    return evaluate(model, (inputs, labels), {"far": unknown}).numbers


@pytest.fixture(scope="module")
def comparison():
    results = {"good": [numbers(4, s) for s in range(3)], "bad": [numbers(0.5, s) for s in range(3)]}
    costs = {"good": [{"seconds": 3.0, "parameters": 5.0}] * 3, "bad": [{"parameters": 7.0}] * 3}
    return Comparison(results, costs)


class TestColumn:
    def test_by_hand(self):
        column = Column("accuracy", {"a": [0.9, 0.8], "b": [0.5, 0.5], "c": []}, True, 100, 1)
        assert column.mean("a") == pytest.approx(0.85)
        assert column.spread("a") == pytest.approx(math.sqrt(0.005))
        assert column.best() == "a"
        assert (column.cell("a"), column.cell("b"), column.cell("c")) == ("**85.0 ± 7.1**", "50.0 ± 0.0", "–")

    def test_less_is_better(self):
        assert Column("ECE", {"a": [0.9, 0.8], "b": [0.5, 0.5]}, False).best() == "b"

    @pytest.mark.parametrize(
        "values",
        [
            {"a": [1.0], "b": [0.0]},
            {"a": [1.0, 1.0], "b": [0.0]},
            {"b": [0.0], "a": [1.0, 1.0]},
            {"a": [1.0, 0.0], "b": [0.4, 0.4]},
            {"a": [0.900, 0.901], "b": [0.880, 0.881], "c": [0.99, 0.77]},
            {"a": [1.0, 1.0]},
            {},
        ],
    )
    def test_no_clear_winner(self, values):
        """One seed, a lead within the spread of any other, or no other method: nothing is bold."""
        assert Column("accuracy", values, True).best() is None

    def test_neither_is_better(self):
        assert Column("entropy", {"a": [1.0, 1.0], "b": [0.0, 0.0]}).best() is None


class TestTable:
    def test_markdown(self, comparison):
        lines = comparison.to_markdown().splitlines()
        assert lines[0].startswith(
            "| method | accuracy, % | NLL, nats | ECE | entropy, bits | far: AUROC, % |"
        )
        assert lines[2].startswith("| good (3 seeds) | **")
        assert len(lines) == 4
        assert all(line.count("|") == lines[0].count("|") for line in lines)

    def test_numbers(self, comparison):
        by_name = {column.name: column for column in comparison.columns}
        accuracy = [each["test"]["accuracy"] for each in comparison.results["good"]]
        assert by_name["accuracy, %"].values["good"] == accuracy
        own = [each["ood"]["far"]["scores"]["vacuity"]["auroc"] for each in comparison.results["bad"]]
        assert by_name["far: AUROC by its own score, %"].values["bad"] == own
        assert by_name["training, s"].cell("bad") == "–"
        assert "one prediction, ms" not in by_name  # it was not measured

    def test_files(self, comparison, tmp_path):
        paths = comparison.save(tmp_path)
        assert [path.name for path in paths] == ["comparison.md", "comparison.csv", "comparison.json"]
        rows = list(csv.DictReader(io.StringIO(paths[1].read_text())))
        expected = Column("a", {"good": [e["test"]["accuracy"] for e in comparison.results["good"]]})
        assert float(rows[0]["accuracy, % mean"]) == pytest.approx(100 * expected.mean("good"))
        assert rows[1]["training, s mean"] == ""
        values = json.loads(paths[2].read_text())["values"]
        assert values["accuracy, %"]["good"] == [
            100 * e["test"]["accuracy"] for e in comparison.results["good"]
        ]
        assert len(values["ECE"]["bad"]) == 3

    def test_nothing(self):
        with pytest.raises(RandomSetError, match="nothing to compare"):
            Comparison({}, {}).to_markdown()


def test_methods_with_different_unknown_inputs():
    near = numbers(4, 0)
    near["ood"] = {"near": near["ood"]["far"]}
    table = Comparison({"one": [numbers(4, 1)], "two": [near]}, {})
    values = {column.name: column.values for column in table.columns}
    own = "AUROC by its own score, %"
    assert [len(values[f"far: {own}"][method]) for method in ("one", "two")] == [1, 0]
    assert [len(values[f"near: {own}"][method]) for method in ("one", "two")] == [0, 1]
    assert "–" in table.to_markdown()


def test_the_own_score_of_a_model_with_several():
    """One value per seed: the credal width of a random-set ensemble, not its mutual information as well."""
    both = numbers(4, 0)
    scores = both["ood"]["far"]["scores"]
    scores |= {"mutual information": {"auroc": 0.6}, "credal width": {"auroc": 0.7}}
    columns = {column.name: column.values for column in Comparison({"one": [both]}, {}).columns}
    assert columns["far: AUROC by its own score, %"]["one"] == [0.7]
