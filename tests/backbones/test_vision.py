"""timm and torchvision networks, with small stand-ins for both libraries; tests/vision has the real ones."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from randomset import backbones
from randomset.backbones import vision
from randomset.backbones.registry import check_name, default_image_size
from randomset.errors import RandomSetError


class TimmNet(nn.Module):
    """A convolution and a classifier, with timm's attributes."""

    def __init__(self, in_chans=3, **settings):
        super().__init__()
        self.conv, self.fc, self.num_features = nn.Conv2d(in_chans, 8, 3), nn.Linear(8, 10), 8
        self.pretrained_cfg = {"classifier": "fc", "mean": [0.1] * 3, "std": [0.2] * 3, **settings}
        self.pretrained_cfg["input_size"] = (3, 64, 64)

    def reset_classifier(self, num_classes):
        self.fc = nn.Identity()

    def forward(self, images):
        return self.fc(self.conv(images).mean((2, 3)))


class TorchvisionNet(TimmNet):
    """The same with an auxiliary classifier, as Inception has."""

    def __init__(self):
        super().__init__()
        self.AuxLogits = nn.Sequential()
        self.AuxLogits.add_module("fc", nn.Linear(8, 10))


@pytest.fixture
def settings():
    """What timm publishes about its network."""
    return {}


@pytest.fixture(autouse=True)
def libraries(monkeypatch, settings):
    published = SimpleNamespace(input_size=(3, 64, 64), fixed_input_size=False)
    timm = SimpleNamespace(
        is_model=["net10", "net20"].__contains__,
        list_models=lambda: ["net10", "net20"],
        get_pretrained_cfg=lambda name: published,
        create_model=lambda name, pretrained, **options: TimmNet(**options, **settings),
    )
    transform = SimpleNamespace(mean=[0.3] * 3, std=[0.4] * 3, crop_size=[48])
    weights = SimpleNamespace(url="https://example.com/net10-01.pth", transforms=lambda: transform)
    models = SimpleNamespace(
        list_models=lambda module: ["net10"],
        get_model=lambda name, weights: TorchvisionNet(),
        get_model_weights=lambda name: SimpleNamespace(DEFAULT=weights),
        vision_transformer=SimpleNamespace(VisionTransformer=nn.Transformer),
    )
    monkeypatch.setattr(vision, "timm", lambda: timm)
    monkeypatch.setattr(vision, "torchvision", lambda: SimpleNamespace(models=models))


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_unknown_models_are_refused_with_similar_names(library):
    check_name(f"{library}:net10")
    with pytest.raises(RandomSetError, match=f"{library} has no such model; got net11; .*such as net10"):
        check_name(f"{library}:net11")


def test_default_image_size():
    assert default_image_size("timm:net10") == 64
    assert default_image_size("torchvision:net10") == 48


def test_timm_takes_any_number_of_channels_without_weights():
    backbone = backbones.build("timm:net10", in_channels=5)
    assert backbone(torch.rand(2, 5, 8, 8)).shape == (2, 8)
    assert backbone.pretrained_inputs is None
    assert backbone.spec == {"name": "timm:net10", "options": {"in_channels": 5, "image_size": None}}
    with pytest.raises(RandomSetError, match="expect images with 3 channels; got 5"):
        backbones.build("timm:net10", in_channels=5, weights="w.pth")


def test_torchvision_takes_colour_or_grey_images():
    with pytest.raises(RandomSetError, match="take colour or grey images; got 5 channels"):
        backbones.build("torchvision:net10", in_channels=5)


def test_the_auxiliary_classifier_becomes_a_second_output():
    backbone = backbones.build("torchvision:net10")
    assert backbone.auxiliary_features == 8
    (maps,) = vision._enlarge_maps(backbone, (torch.rand(2, 3, 5, 5),))
    assert maps.shape == (2, 3, 17, 17)


@pytest.mark.parametrize(
    ("library", "network", "mean", "size"),
    [("timm", TimmNet, 0.1, 64), ("torchvision", TorchvisionNet, 0.3, 48)],
)
def test_weights_from_a_file(library, network, mean, size, tmp_path):
    trained = network()
    torch.save(trained.state_dict(), tmp_path / "w.pth")
    backbone = backbones.build(f"{library}:net10", in_channels=1, weights=tmp_path / "w.pth")
    assert torch.equal(backbone.layers.conv.weight, trained.conv.weight)
    inputs = backbone.pretrained_inputs
    assert (inputs.mean[0], inputs.size, inputs.remark) == (mean, size, "")
    assert backbone.spec["options"]["in_channels"] == 3
    trained.fc = nn.Identity()
    grey = torch.rand(2, 1, 8, 8)
    assert torch.equal(backbone.eval()(grey), trained(grey.expand(-1, 3, -1, -1)))


class TestPublishedWeights:
    def test_torchvision_uses_its_cache(self, cache):
        trained = TorchvisionNet()
        torch.save(trained.state_dict(), cache / "net10-01.pth")
        backbone = backbones.build("torchvision:net10", weights="default", image_size=32)
        assert torch.equal(backbone.layers.conv.weight, trained.conv.weight)
        assert backbone.pretrained_inputs.size == 32

    @pytest.mark.parametrize(
        "settings", [{"url": "https://example.com/net10-02.pth"}, {"hf_hub_id": "timm/net10-02"}]
    )
    def test_timm_uses_the_same_cache(self, cache, settings):
        from safetensors.torch import save_file

        trained = TimmNet()
        torch.save(trained.state_dict(), cache / "net10-02.pth")
        save_file(trained.state_dict(), cache / "net10-02.safetensors")
        backbone = backbones.build("timm:net10", weights="default")
        assert torch.equal(backbone.layers.conv.weight, trained.conv.weight)

    def test_none_are_published(self, cache):
        with pytest.raises(RandomSetError, match="no weights are published"):
            backbones.build("timm:net10", weights="default")
