"""Classifiers of torchvision and timm, wrapped: the same labels, and files."""

import pytest
import torch

import randomset as rs
from randomset._core.torchvision import timm, torchvision
from randomset.models import load

IMAGES = torch.rand(48, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def build(name):
    torch.manual_seed(0)
    library, _, model = name.partition(":")
    if library == "timm":
        return timm().create_model(model, num_classes=5).eval()
    size = {"image_size": 32} if model.startswith("vit") else {}
    built = torchvision().models.get_model(model, weights=None, num_classes=5, **size).eval()
    if model.startswith("vit"):
        torch.nn.init.normal_(built.heads.head.weight, std=0.1)  # zero by default
    return built


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("torchvision:resnet18", "fc"),
        ("torchvision:vit_b_16", "heads.head"),
        ("timm:resnet18", "fc"),
        ("timm:convnext_atto", "head.fc"),
    ],
)
def test_a_classifier_of_a_library(name, layer, tmp_path):
    classifier = build(name)
    with torch.no_grad():
        logits = classifier(IMAGES)
    labels = logits.argmax(1)
    network = rs.wrap(classifier, (IMAGES[:24], labels[:24]), (IMAGES[24:], labels[24:]))
    answer = network.predict(IMAGES)
    assert network.replaced_layer == layer
    assert torch.equal(answer.labels, labels)
    assert torch.allclose(network(IMAGES), logits, atol=1e-4)
    again = load(network.save(tmp_path), backbone=build(name))
    assert torch.allclose(again.predict(IMAGES).mass, answer.mass, atol=1e-6)
