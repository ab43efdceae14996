"""Backbones by name, and specifications that files may not contain."""

import pytest
import torch
from torch import nn

from randomset import backbones
from randomset.backbones.registry import build_limits, check_spec, default_image_size
from randomset.errors import FileFormatError, RandomSetError


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


@pytest.mark.parametrize("name", ["x:model", "timm:", "hf:"])
def test_unknown_names(name):
    with pytest.raises(RandomSetError, match="unknown backbone"):
        backbones.build(name)


def test_our_own_networks_have_no_default_image_size():
    assert default_image_size("small_cnn") is None


@pytest.mark.parametrize(
    "options", [{"in_channels": 0}, {"in_channels": True}, {"image_size": 10**5}, {"weights": "default"}]
)
def test_invalid_specs(options):
    check_spec({"name": "timm:resnet18", "options": {"in_channels": 3, "image_size": 32}})
    with pytest.raises(FileFormatError, match=f"invalid backbone specification.*{next(iter(options))}"):
        check_spec({"name": "timm:resnet18", "options": options})


def test_build_limits():
    weights = {"weight": torch.zeros(4)}
    with build_limits(weights):
        nn.Linear(100, 100)
    with pytest.raises(FileFormatError, match="does not match its weights"), build_limits(weights):
        nn.Linear(10_000, 10_000, device="meta")
    nn.Linear(10_000, 10_000, device="meta")  # the limit ends with the block


@pytest.mark.parametrize("name", ["hf:model", "timm:resnet18"])
def test_only_hugging_face_has_the_features_of_a_classifier(name):
    options = {"config": {"model_type": "bert"}} if name.startswith("hf") else {}
    with pytest.raises(FileFormatError, match=r"invalid backbone specification.*classifier"):
        check_spec({"name": name, "options": {**options, "classifier": "yes"}})
