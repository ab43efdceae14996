"""Digests: equal for equal samples, wherever they lie."""

from dataclasses import replace

import pytest
import torch

from randomset.data import load_source
from randomset.data.digests import fingerprint, sample_digests


class TestSamples:
    def test_every_digit_has_its_own(self):
        digits = load_source("digits").inputs
        digests = sample_digests(digits)
        assert len(set(digests)) == len(torch.unique(digits.flatten(1), dim=0))
        assert {len(digest) for digest in digests} == {16}
        order = torch.randperm(len(digits))
        assert sample_digests(digits[order]) == [digests[row] for row in order]

    def test_bytes_and_pixels_are_the_same(self):
        pixels = torch.randint(0, 256, (700, 3, 4, 4), dtype=torch.uint8)
        for other in (pixels / 255, pixels.double() / 255, pixels.clone()):
            assert sample_digests(other) == sample_digests(pixels)

    def test_a_small_difference_counts(self):
        features = torch.randn(5, 4)
        assert set(sample_digests(features)).isdisjoint(sample_digests(features + 1e-5))

    def test_constant_samples_have_none(self):
        assert sample_digests(torch.zeros(2, 1, 4, 4)) == ["", ""]
        assert "" not in sample_digests(torch.zeros(2, 1))  # a single feature is not constant
        assert sample_digests(torch.zeros(0, 4)) == []

    def test_negative_zero_and_values_that_are_not_finite(self):
        rows = torch.tensor([[0.0, 1.5], [float("nan"), 1.5], [float("inf"), 3e38]])
        assert sample_digests(rows)[0] == sample_digests(torch.tensor([[-0.0, 1.5]]))[0]
        assert len(set(sample_digests(rows))) == 3

    def test_texts_and_tokens(self):
        assert len(set(sample_digests(["a cat", "a dog", "a cat"]))) == 2
        assert len(set(sample_digests(torch.tensor([[1, 2, -1], [1, 2, 3]])))) == 2


@pytest.mark.parametrize("change", ["labels", "inputs", "files"])
def test_a_fingerprint_changes_with_the_source(change):
    digits = load_source("digits")
    other = {
        "labels": replace(digits, labels=digits.labels.flip(0)),
        "inputs": replace(digits, inputs=digits.inputs + 1),
        "files": replace(digits, files=("a.png",) * 1797),
    }[change]
    assert fingerprint(other) != fingerprint(digits)
    assert fingerprint(digits) == "11c91b21a47c8aac"  # stored in runs of version 0.1
