"""Units of scores."""

import pytest

from randomset.evaluation.units import UNITS, with_unit


@pytest.mark.parametrize("score", UNITS)
def test_entropies_are_in_bits(score):
    assert with_unit(score) == f"{score}, bits"
    assert with_unit(score, "H") == "H, bits"


def test_other_scores_have_no_unit():
    assert with_unit("credal width") == "credal width"
    assert with_unit("credal width", "Width") == "Width"
