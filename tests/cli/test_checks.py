"""Values that users type."""

import math

import pytest

from randomset.cli.checks import (
    check_at_least_one,
    check_seed,
    class_weights,
    named_sources,
    number_or_auto,
    share_or_number,
)
from randomset.errors import RandomSetError


def test_sources_with_names():
    assert named_sources(["a=b=c", "folder/photos.npz", "mnist"]) == {
        "a": "b=c",
        "photos": "folder/photos.npz",
        "mnist": "mnist",
    }
    for wrong in (["=x"], ["a="], [""], ["a=b", "a=c"], ["x/a.npz", "y/a.npz"]):
        with pytest.raises(RandomSetError):
            named_sources(wrong)


def test_class_weights():
    assert class_weights(None) is class_weights([]) is None
    assert class_weights(["balanced"]) == "balanced"
    assert class_weights(["cat=2", "a=b=0.5"]) == (("cat", 2.0), ("a=b", 0.5))
    for wrong in (["cat"], ["=2"], ["cat=much"], ["balanced", "cat=2"]):
        with pytest.raises(RandomSetError, match="must be NAME=WEIGHT or balanced"):
            class_weights(wrong)
    with pytest.raises(RandomSetError, match=r"not negative; got cat: -1\.0"):
        class_weights(["cat=-1"])


def test_numbers():
    check_at_least_one(samples=1, ood_samples=None)
    with pytest.raises(RandomSetError, match=r"--ood-samples is out of range; got 0"):
        check_at_least_one(samples=1, ood_samples=0)
    assert (number_or_auto("auto"), number_or_auto("12")) == ("auto", 12)
    with pytest.raises(RandomSetError, match="must be a number or auto"):
        number_or_auto("few")
    check_seed(2**63 - 1)
    for seed in (-1, 2**63):
        with pytest.raises(RandomSetError, match="--seed"):
            check_seed(seed)


def test_shares():
    assert share_or_number(None, 0.2, "test") == 0.2
    assert share_or_number(0.5, 0.2, "test") == 0.5
    number = share_or_number(30.0, 0.2, "test")
    assert (number, type(number)) == (30, int)
    for wrong in (-0.1, 1.5, math.nan, math.inf):
        with pytest.raises(RandomSetError, match="test is out of range"):
            share_or_number(wrong, 0.2, "test")
