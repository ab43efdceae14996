"""Tables of a result."""

import pytest

from randomset.evaluation import evaluate
from randomset.evaluation.tables import UNITS, with_unit
from tests.evaluation.conftest import TEST, UNKNOWN, network, points


@pytest.mark.parametrize("score", UNITS)
def test_entropies_are_in_bits(score):
    assert with_unit(score) == f"{score}, bits"
    assert with_unit(score, "H") == "H, bits"


def test_other_scores_have_no_unit():
    assert with_unit("credal width") == "credal width"
    assert with_unit("credal width", "Width") == "Width"


def test_reliability():
    found = network()
    found.fit_reliability(points(seed=1), points(90, seed=2))
    result = evaluate(found, TEST, {"noise": UNKNOWN})
    (table,) = (table for table in result.tables if table.title == "Reliability")
    assert table.columns[:2] == ("inputs", "mean")
    assert table.columns[-2:] == ("95 % quantile", "familiar")
    assert [row[0] for row in table.rows] == ["test (120)", "noise (50)"]
    shares = [f"{100 * row['familiar']:.2f} %" for row in result["reliability"].values()]
    assert [row[-1] for row in table.rows] == shares
    limit = float(found.reliability.familiar_from)
    sentence = (
        f"Familiar, with a reliability of {limit:.4g} or more: "
        f"{shares[0]} of the test inputs, {shares[1]} of noise."
    )
    assert sentence in result.summary


@pytest.mark.slow
class TestTables:
    def test_tables(self, result):
        titles = [table.title for table in result.tables]
        assert titles == [
            "Test data, 1497 inputs",
            "Classes",
            "Most confused classes",
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
