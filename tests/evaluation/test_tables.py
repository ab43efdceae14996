"""Tables of a result."""

import pytest

from randomset.evaluation.tables import UNITS, with_unit


@pytest.mark.parametrize("score", UNITS)
def test_entropies_are_in_bits(score):
    assert with_unit(score) == f"{score}, bits"
    assert with_unit(score, "H") == "H, bits"


def test_other_scores_have_no_unit():
    assert with_unit("credal width") == "credal width"
    assert with_unit("credal width", "Width") == "Width"


@pytest.mark.slow
class TestTables:
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
