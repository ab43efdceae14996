"""Backbones by name."""

import pytest
import torch

from randomset import backbones
from randomset.errors import RandomSetError


def test_unknown_names_and_options():
    with pytest.raises(RandomSetError, match="one of mlp"):
        backbones.build("vgg")
    with pytest.raises(RandomSetError, match="in_features, widths, dropout"):
        backbones.build("mlp", depth=3)


def test_a_scaled_backbone_is_rebuilt_from_its_spec():
    inner, inputs = backbones.mlp(4, widths=(3,)), torch.randn(50, 4)
    features = inner(inputs).detach()
    scaled = backbones.scaled(inner, backbones.Standardise.from_data(features))
    assert scaled(inputs).mean(0).tolist() == pytest.approx([0.0] * 3, abs=1e-5)
    again = backbones.build(scaled.spec["name"], **scaled.spec["options"])
    again.load_state_dict(scaled.state_dict())
    assert torch.equal(again(inputs), scaled(inputs))
    assert backbones.names(again.spec) == ["scaled", "mlp"]
    assert backbones.names(None) == []
