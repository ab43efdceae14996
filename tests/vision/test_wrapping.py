"""Classifiers of torchvision and timm, wrapped: the same labels, and files."""

import numpy as np
import pytest
import torch

import randomset as rs
from randomset._core.torchvision import timm, torchvision
from randomset.backbones.registry import classifier_from_library
from randomset.errors import LabelError, RandomSetError
from randomset.models import load
from randomset.serving.export import Deployed, export_onnx

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
@pytest.mark.filterwarnings("ignore:no training samples of")  # untrained, it may not use all classes
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


MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@pytest.fixture(scope="module", params=["torchvision:resnet18", "timm:resnet18", "timm:convnext_atto"])
def given(request, tmp_path_factory):
    """A classifier by name, its weights in a file, and images with its own labels."""
    folder = tmp_path_factory.mktemp("classifier")
    classifier, draw = build(request.param), torch.Generator().manual_seed(1)
    tints = torch.randint(0, 256, (160, 3, 1, 1), generator=draw)
    noise = torch.randint(-20, 20, (160, 3, 32, 32), generator=draw)
    images = (tints + noise).clamp(0, 255).to(torch.uint8)
    with torch.no_grad():
        logits = classifier((images / 255 - MEAN) / STD)
        bias = next(p for name, p in reversed(list(classifier.named_parameters())) if name.endswith("bias"))
        bias -= logits.mean(0)  # so that every class occurs
        labels = (logits - logits.mean(0)).argmax(1)
    torch.save(classifier.state_dict(), folder / "weights.pth")
    np.savez(folder / "images.npz", images=images, labels=labels, classes=list("abcde"))
    np.savez(folder / "four.npz", images=images[labels < 4], labels=labels[labels < 4], classes=list("abcd"))
    return request.param, folder, images, labels


def test_a_network_by_name_becomes_a_run(given, tmp_path):
    name, folder, images, labels = given
    options = {"weights": folder / "weights.pth", "size": 32, "validation": 40}
    run = rs.Run.wrap(name, tmp_path / "run", folder / "images.npz", **options)
    assert run.model.predict(images).labels.equal(labels)
    assert run.model.classes == tuple("abcde")
    assert run.config.backbone == name
    assert run.threshold is not None
    grey = images[:, :1, ::2, ::2]
    assert len(run.model.predict(run.model.input_spec.fit(grey)[0])) == 160
    result = run.evaluate(sweeps=False)
    assert result["test"]["accuracy"] == 1
    distance = export_onnx(Deployed(run.model), images[:4].float() / 255, tmp_path / "model.onnx")
    assert distance is not None
    assert distance < 1e-4


def test_names_that_do_not_fit(given, tmp_path):
    name, folder, *_ = given
    file = folder / "weights.pth"
    options = {"weights": file, "size": 32}
    with pytest.raises(LabelError, match=r"different numbers of classes; got 4 in four: .*expected 5"):
        rs.Run.wrap(name, tmp_path / "run", folder / "four.npz", **options)
    with pytest.raises(RandomSetError, match="file of weights does not identify its network"):
        rs.Run.wrap(file, tmp_path / "run", folder / "images.npz")
    with pytest.raises(RandomSetError, match="weights are from a different architecture"):
        rs.Run.wrap("torchvision:resnet50", tmp_path / "run", folder / "images.npz", **options)
    with pytest.raises(RandomSetError, match="has no such model; got resnet-18"):
        rs.Run.wrap("timm:resnet-18", tmp_path / "run", folder / "images.npz", **options)
    with pytest.raises(RandomSetError, match="classifier without weights is not trained"):
        rs.Run.wrap(name, tmp_path / "run", folder / "images.npz", weights="none")
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:deit_tiny_distilled_patch16_224", "are not accessible; got timm:deit_.*, which ends in tuple"),
        ("torchvision:squeezenet1_0", r"no linear layer to replace; got SqueezeNet with .*classifier"),
    ],
)
def test_features_that_cannot_be_reached(name, message, tmp_path):
    library, _, model = name.partition(":")
    made = timm().create_model(model) if library == "timm" else torchvision().models.get_model(model)
    torch.save(made.state_dict(), tmp_path / "weights.pth")
    with pytest.raises(RandomSetError, match=message):
        rs.Run.wrap(name, tmp_path / "run", "digits", weights=tmp_path / "weights.pth")


def test_published_weights_name_their_classes(tmp_path, monkeypatch):
    """Weights are looked for in torch's cache first; the classes are ImageNet's."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    published = torchvision().models.get_model_weights("resnet18").DEFAULT
    file = tmp_path / "hub" / "checkpoints" / published.url.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    torch.save(torchvision().models.resnet18().state_dict(), file)
    found = classifier_from_library("torchvision:resnet18", image_size=32)
    assert found.classes[:2] == ("tench", "goldfish")
    with pytest.raises(LabelError, match=r"unknown class; got 0 in digits; expected one of tench, "):
        rs.Run.wrap("torchvision:resnet18", tmp_path / "run", "digits", size=32)
