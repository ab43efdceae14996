"""The paper's architectures as random-set networks on small images: gradients, files, export, weights."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from randomset import Budget, RandomSetLoss, RandomSetNetwork, backbones
from randomset.backbones.registry import default_image_size
from randomset.training.preparation import backbone_for

BUDGET = Budget.from_sets([(0, 1), (2, 3, 4)], 10)
# name: backbone, image size, hidden layers of the head, features
PAPER = {
    "ResNet-50": ("torchvision:resnet50", 64, (1024, 512), 2048),
    "WideResNet-28-10": ("wide_resnet", 32, (), 640),
    "VGG16": ("torchvision:vgg16", 32, (), 4096),
    "Inception V3": ("torchvision:inception_v3", 96, (), 2048),
    "EfficientNet-B2": ("torchvision:efficientnet_b2", 64, (), 1408),
    "ViT-B/16": ("torchvision:vit_b_16", 32, (), 768),
    "timm's ResNet-50": ("timm:resnet50", 64, (), 2048),
    "timm's EfficientNet-B2": ("timm:efficientnet_b2", 64, (), 1408),
    "timm's ViT-B/16": ("timm:vit_base_patch16_224", 32, (), 768),
    "timm's VGG16": ("timm:vgg16", 32, (), 4096),
}


@pytest.fixture(scope="module", params=PAPER)
def wrapped(request):
    name, size, hidden, features = PAPER[request.param]
    torch.manual_seed(0)
    images = torch.rand(4, 3, size, size)
    network = RandomSetNetwork(backbone_for(name, images), BUDGET, hidden=hidden)
    assert network.head.in_features == features
    return network, images


def test_forward_and_backward(wrapped):
    network, images = wrapped
    labels, loss = torch.tensor([0, 1, 2, 9]), RandomSetLoss(BUDGET)
    network.train().zero_grad()
    loss(network(images), labels).backward()
    trained = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    untrained = [name for name, p in trained if p.grad is None or not p.grad.isfinite().all()]
    assert not untrained
    network.zero_grad()
    assert network.eval()(images).shape == (4, 12)
    answer = network.predict(images)
    assert torch.allclose(answer.mass.sum(-1), torch.ones(4), atol=1e-5)


def test_save_and_load(wrapped, tmp_path):
    network, images = wrapped
    network.eval().save(tmp_path)
    again = RandomSetNetwork.load(tmp_path)
    assert torch.equal(again(images), network(images))


def test_export(wrapped):
    """With a dynamic batch size."""
    network, images = wrapped
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(network.eval(), (images,), dynamic_shapes=((({0: batch}),),))
    assert torch.allclose(program.module()(images[:3]), network(images[:3]), atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["timm:vit_tiny_patch16_224", "torchvision:resnet18"])
def test_onnx_gives_the_same_numbers(name, tmp_path):
    from randomset.serving import Deployed, export_onnx
    from randomset.serving.export import TOLERANCE

    torch.manual_seed(0)
    images = torch.rand(4, 3, 64, 64)
    network = RandomSetNetwork(backbone_for(name, images), BUDGET).eval()
    distance = export_onnx(Deployed(network), images, tmp_path / "model.onnx")
    assert distance is not None
    assert distance <= TOLERANCE


def test_inceptions_auxiliary_head_gets_gradients():
    torch.manual_seed(0)
    images, labels = torch.rand(4, 3, 96, 96), torch.tensor([0, 1, 2, 9])
    network = RandomSetNetwork(backbone_for("torchvision:inception_v3", images), BUDGET).train()
    main, second = network(images)
    assert main.shape == second.shape == (4, 12)
    loss = RandomSetLoss(BUDGET)
    loss((main, second), labels).backward()
    assert network.auxiliary_head.layers[-1].weight.grad.abs().max() > 0
    assert network.backbone.layers.AuxLogits.conv0.conv.weight.grad.abs().max() > 0


class TestImages:
    def test_grey_images(self):
        grey = torch.rand(2, 1, 32, 32)
        for name in ("torchvision:resnet18", "timm:resnet18"):
            backbone = backbone_for(name, grey).eval()
            assert backbone(grey).shape == (2, 512)

    def test_other_numbers_of_channels(self):
        with pytest.raises(ValueError, match="take colour or grey images; got 5 channels"):
            backbone_for("torchvision:resnet18", torch.rand(2, 5, 32, 32))
        assert backbone_for("timm:resnet18", torch.rand(2, 5, 32, 32)).eval()(torch.rand(2, 5, 32, 32)).shape
        colour = backbone_for("torchvision:resnet18", torch.rand(2, 3, 32, 32))
        with pytest.raises(ValueError, match="unexpected number of image channels"):
            colour(torch.rand(2, 4, 32, 32))

    def test_networks_without_a_final_linear_layer(self):
        with pytest.raises(ValueError, match="no linear layer to replace"):
            backbones.build("torchvision:squeezenet1_0")

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("torchvision:resnet19", "torchvision has no such model; got resnet19; expected one of"),
            ("timm:resnet19", "timm has no such model"),
            ("torchvision:fasterrcnn_resnet50_fpn", "no such model"),
        ],
    )
    def test_unknown_names(self, name, message):
        with pytest.raises(ValueError, match=message):
            backbones.build(name)

    def test_sizes_not_divisible_by_the_patch_size(self):
        for name in ("torchvision:vit_b_16", "timm:vit_tiny_patch16_224"):
            with pytest.raises(
                ValueError, match=r"patch size; got images of 60 × 60.*multiple of 16.*--size 64"
            ):
                backbones.build(name, image_size=60)


class TestWeights:
    def test_grey_images_are_repeated_for_colour_weights(self, tmp_path):
        import timm
        import torchvision

        from randomset.training.preparation import frozen_features, preprocess_for

        torch.save(timm.create_model("resnet18").state_dict(), tmp_path / "timm.pth")
        torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "torchvision.pth")
        grey = torch.rand(4, 1, 32, 32)
        for library in ("timm", "torchvision"):
            backbone = backbone_for(
                f"{library}:resnet18", grey, weights=str(tmp_path / f"{library}.pth")
            ).eval()
            assert torch.equal(backbone(grey), backbone(grey.expand(-1, 3, -1, -1)))
            assert frozen_features(backbone, preprocess_for(backbone, grey), grey).shape == (4, 512)
            network = RandomSetNetwork(backbone, BUDGET).eval()
            network.save(tmp_path / library)
            assert torch.equal(RandomSetNetwork.load(tmp_path / library)(grey), network(grey))
            with pytest.raises(ValueError, match=r"3 channels|colour or grey"):
                backbone_for(
                    f"{library}:resnet18", torch.rand(2, 4, 32, 32), weights=str(tmp_path / f"{library}.pth")
                )

    def test_a_transformer_at_another_image_size(self, tmp_path):
        """Position embeddings are interpolated."""
        import timm
        import torchvision

        torch.save(timm.create_model("vit_tiny_patch16_224").state_dict(), tmp_path / "timm.pth")
        torch.save(torchvision.models.vit_b_32().state_dict(), tmp_path / "torchvision.pth")
        images = torch.rand(2, 3, 64, 64)
        for library, name in (("timm", "vit_tiny_patch16_224"), ("torchvision", "vit_b_32")):
            file = tmp_path / f"{library}.pth"
            backbone = backbones.build(f"{library}:{name}", image_size=64, weights=file).eval()
            assert backbone(images).isfinite().all()

    def test_two_classifiers(self, tmp_path):
        import timm

        model = timm.create_model("deit_tiny_distilled_patch16_224")
        torch.save(model.state_dict(), tmp_path / "w.pth")
        backbone = backbones.build("timm:deit_tiny_distilled_patch16_224", weights=tmp_path / "w.pth").eval()
        assert backbone(torch.rand(2, 3, 224, 224)).shape == (2, 192)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("timm:botnet50ts_256", "no weights are published"),
            ("torchvision:fcn_resnet50", "torchvision has no such model"),
        ],
    )
    def test_no_published_weights(self, name, message):
        with pytest.raises(ValueError, match=message):
            backbones.build(name, weights="default")
        if name.startswith("torchvision"):
            with pytest.raises(ValueError, match=message):
                default_image_size(name)

    def test_a_file_in_the_folder_that_the_error_names(self, monkeypatch, tmp_path):
        import timm

        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
        path = tmp_path / "hub" / "checkpoints" / "resnet18.a1_in1k.safetensors"
        save_file(timm.create_model("resnet18").state_dict(), path)
        assert backbones.build("timm:resnet18", weights="default").pretrained_inputs is not None

    @pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:resnet18", "timm:vit_tiny_patch16_224"])
    def test_weights_from_a_file(self, name, tmp_path):
        import timm
        import torchvision

        library, _, model = name.partition(":")
        torch.manual_seed(1)
        source = timm.create_model(model) if library == "timm" else torchvision.models.get_model(model)
        torch.save({"state_dict": source.state_dict()}, tmp_path / "w.pth")
        backbone = backbones.build(name, image_size=224, weights=tmp_path / "w.pth").eval()
        assert backbone.pretrained_inputs.size == 224
        images = torch.rand(2, 3, 224, 224)
        source.eval()
        expected = (
            source.forward_head(source.forward_features(images), pre_logits=True)
            if library == "timm"
            else None
        )
        if expected is None:
            source.fc = nn.Identity()
            expected = source(images)
        assert torch.allclose(backbone(images), expected, atol=1e-5)

    @pytest.mark.parametrize(
        ("name", "file"),
        [
            ("torchvision:resnet18", "resnet18-f37072fd.pth in"),
            ("timm:resnet18", "renamed to resnet18.a1_in1k.safetensors, in"),
        ],
    )
    def test_a_failed_download_names_the_file(self, name, file, monkeypatch, tmp_path):
        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
        with pytest.raises(ValueError, match="not on this machine") as error:
            backbones.build(name, weights="default")
        assert file in str(error.value)
        assert "--weights FILE" in str(error.value)

    def test_a_file_of_another_architecture(self, tmp_path):
        import torchvision

        torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "w.pth")
        with pytest.raises(ValueError, match="different architecture") as error:
            backbones.build("torchvision:resnet50", weights=tmp_path / "w.pth")
        assert "missing" in str(error.value)

    def test_cached_files_come_first(self, monkeypatch, tmp_path):
        """A file in torch's cache is used without a download."""
        import torchvision

        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        folder = tmp_path / "hub" / "checkpoints"
        folder.mkdir(parents=True)
        torch.manual_seed(1)
        source = torchvision.models.resnet18()
        torch.save(source.state_dict(), folder / "resnet18-f37072fd.pth")
        backbone = backbones.build("torchvision:resnet18", weights="default")
        assert torch.equal(backbone.layers.conv1.weight, source.conv1.weight)
        assert backbone.pretrained_inputs.mean == pytest.approx((0.485, 0.456, 0.406))
