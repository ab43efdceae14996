"""Standardise: mean and standard deviation as part of the network."""

import pytest
import torch

from randomset.backbones import Standardise
from randomset.errors import RandomSetError, ShapeError


def test_images_and_tables():
    images = torch.randn(50, 3, 5, 5) * 4 + 1
    standard = Standardise.from_data(images)(images)
    assert standard.mean((0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-5)
    assert standard.std((0, 2, 3), correction=0).tolist() == pytest.approx([1] * 3, abs=1e-5)


def test_a_constant_feature_keeps_its_scale():
    table = torch.tensor([[1.0, 0.1], [2.0, 0.1], [4.0, 0.1]])
    assert Standardise.from_data(table).std[1] == 1


def test_invalid_arguments():
    with pytest.raises(RandomSetError, match="positive"):
        Standardise([0.0], [0.0])
    with pytest.raises(ShapeError, match=r"\(2, 4\).*\(batch, 3, …\)"):
        Standardise(torch.zeros(3), torch.ones(3))(torch.zeros(2, 4))
