"""What a training starts from: weights, preprocessing, and features that are computed once."""

import pytest
import torch
from torch import nn

from randomset.backbones.base import PretrainedInputs
from randomset.errors import RandomSetError
from randomset.training import TrainConfig
from randomset.training.preparation import backbone_for, frozen_features, preprocess_for, scaled_features


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 3), 0

    def forward(self, inputs):
        self.calls += 1
        return self.layer(inputs)


class TestFrozenFeatures:
    def test_they_are_computed_once(self, cache, caplog):
        caplog.set_level("INFO", "randomset.training")
        torch.manual_seed(0)
        model, inputs = Counting().eval(), torch.randn(300, 4)
        first = frozen_features(model, None, inputs)
        calls = model.calls
        again = frozen_features(model, None, inputs)
        assert torch.equal(first, model.layer(inputs).detach())
        assert torch.equal(first, again)
        assert model.calls == calls > 0
        assert [record.getMessage().split()[0] for record in caplog.records] == ["Computing", "Using"]
        assert len(list((cache / "features").iterdir())) == 1

    def test_anything_that_changes_is_noticed(self, cache):
        torch.manual_seed(0)
        model, inputs = Counting().eval(), torch.randn(300, 4)
        frozen_features(model, None, inputs)
        other = inputs.clone()
        other[299, 3] += 1e-6
        frozen_features(model, None, other)
        frozen_features(model, nn.LayerNorm(4), inputs)
        with torch.no_grad():
            model.layer.bias[2] += 1e-6
        frozen_features(model, None, inputs)
        assert len(list((cache / "features").iterdir())) == 4

    def test_a_damaged_file_is_replaced(self, cache):
        torch.manual_seed(0)
        model, inputs = Counting().eval(), torch.randn(30, 4)
        first = frozen_features(model, None, inputs)
        (file,) = (cache / "features").iterdir()
        file.write_bytes(b"nothing")
        assert torch.equal(frozen_features(model, None, inputs), first)

    def test_a_cache_that_cannot_be_written(self, tmp_path, monkeypatch, caplog):
        (tmp_path / "file").write_text("x")
        monkeypatch.setenv("RANDOMSET_CACHE", str(tmp_path / "file"))
        caplog.set_level("INFO", "randomset.training")
        frozen_features(Counting().eval(), None, torch.randn(3, 4))
        assert "Could not cache the features" in caplog.text


def test_a_users_own_backbone_keeps_its_features():
    own, features = nn.Linear(2, 3), torch.randn(5, 3)
    backbone, scale = scaled_features(own, features)
    assert backbone is own
    assert torch.equal(scale(features), features)


def test_the_preprocessing_of_pretrained_weights():
    backbone = nn.Identity()
    backbone.pretrained_inputs = PretrainedInputs((0.4, 0.5, 0.6), (0.1, 0.2, 0.3), 224)
    colour, grey = torch.rand(2, 3, 8, 8), torch.rand(2, 1, 8, 8)
    assert preprocess_for(backbone, colour).mean.tolist() == pytest.approx([0.4, 0.5, 0.6])
    assert preprocess_for(backbone, grey).mean.tolist() == pytest.approx([0.5])
    assert preprocess_for(backbone, torch.zeros(2, 5, dtype=torch.long)) is None
    assert preprocess_for(nn.Identity(), colour).mean.tolist() == pytest.approx(
        colour.mean((0, 2, 3)).tolist()
    )


@pytest.mark.parametrize(
    ("name", "inputs", "options", "message"),
    [
        ("small_cnn", torch.zeros(2, 1, 8, 8), {"weights": "default"}, "no weights are published"),
        ("auto", torch.zeros(2, 5, dtype=torch.long), {}, "texts need a text encoder"),
        ("hf:x", torch.zeros(2, 5), {}, "expects images or texts"),
        ("timm:x", torch.zeros(2, 3, 8, 8), {"width": 4}, "width applies to the backbones of randomset only"),
        ("magic", torch.zeros(2, 3, 8, 8), {}, "unknown backbone; got magic"),
    ],
)
def test_mistakes(name, inputs, options, message):
    with pytest.raises(RandomSetError, match=message):
        backbone_for(name, inputs, **options)


class TestBackbones:
    @pytest.mark.parametrize(
        ("name", "shape", "expected"),
        [
            ("auto", (2, 7), "mlp"),
            ("auto", (2, 1, 8, 8), "small_cnn"),
            ("auto", (2, 3, 8, 12), "resnet"),
            ("mlp", (2, 1, 8, 8), "mlp"),
            ("resnet50", (2, 3, 32, 32), "resnet"),
            ("wide_resnet", (2, 3, 32, 32), "wide_resnet"),
        ],
    )
    def test_by_name_and_shape(self, name, shape, expected):
        with torch.device("meta"):
            assert backbone_for(name, torch.zeros(shape)).spec["name"] == expected

    @pytest.mark.parametrize(
        ("name", "shape", "message"),
        [
            ("vgg", (2, 3, 8, 8), "small_cnn"),
            ("small_cnn", (2, 3, 8, 9), "square"),
            ("resnet18", (2, 3), "expects images"),
        ],
    )
    def test_incompatible_backbones(self, name, shape, message):
        with pytest.raises(RandomSetError, match=message):
            backbone_for(name, torch.zeros(shape))


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("mlp", (2, 7), 16),
        ("mlp", (2, 1, 4, 4), 16),
        ("small_cnn", (2, 3, 8, 8), 64),
        ("resnet18", (2, 3, 8, 8), 128),
        ("wide_resnet", (2, 3, 8, 8), 128),
    ],
)
def test_a_width(name, shape, features):
    backbone = backbone_for(name, torch.zeros(shape), 2 if name == "wide_resnet" else 16)
    assert backbone.num_features == features
    with pytest.raises(RandomSetError, match="width is out of range; got 0"):
        TrainConfig(width=0).checked()
