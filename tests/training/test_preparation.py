"""What a training starts from: weights, preprocessing, and features that are computed once."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from randomset.backbones.base import PretrainedInputs
from randomset.errors import RandomSetError, RandomSetWarning
from randomset.training import TrainConfig, preparation
from randomset.training.preparation import (
    backbone_for,
    frozen_features,
    loggers,
    preprocess_for,
    preserve_random_state,
    scaled_features,
)
from tests.training.conftest import network, quick


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
        ("auto", torch.zeros(2, 5, dtype=torch.long), {}, "texts require a text encoder"),
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
            ("fast_cnn", (2, 3, 24, 32), "fast_cnn"),
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
            ("fast_cnn", (2, 3, 8, 8), "16 × 16 pixels or more"),
            ("resnet18", (2, 3), "expects images"),
        ],
    )
    def test_incompatible_backbones(self, name, shape, message):
        with pytest.raises(RandomSetError, match=message):
            backbone_for(name, torch.zeros(shape))


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("mlp", (2, 7), 16 + 7),  # with its inputs
        ("mlp", (2, 1, 4, 4), 16 + 16),
        ("mlp", (2, 513), 16),
        ("small_cnn", (2, 3, 8, 8), 64),
        ("fast_cnn", (2, 3, 16, 16), 64),
        ("resnet18", (2, 3, 8, 8), 128),
        ("wide_resnet", (2, 3, 8, 8), 128),
    ],
)
def test_a_width(name, shape, features):
    backbone = backbone_for(name, torch.zeros(shape), 2 if name == "wide_resnet" else 16)
    assert backbone.num_features == features
    with pytest.raises(RandomSetError, match="width is out of range; got 0"):
        TrainConfig(width=0).checked()


@pytest.mark.slow
class TestRandomState:
    def test_torchs_generator_is_left_alone(self, digits):
        model = network()
        torch.manual_seed(7)
        state = torch.get_rng_state()
        quick(model, digits[0])
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
class TestLoggers:
    def test_a_logger_of_the_user(self, digits, tmp_path):
        from lightning.pytorch.loggers import CSVLogger

        quick(network(), *digits, logger=CSVLogger(tmp_path, name="mine", version=""), out=tmp_path / "run")
        assert "val_accuracy" in (tmp_path / "mine" / "metrics.csv").read_text()
        assert "val_accuracy" in (tmp_path / "run" / "metrics.csv").read_text()

    def test_none_without_a_folder(self):
        assert loggers(None, None) is False
        assert loggers(None, False) is False

    def test_none_at_all(self, tmp_path):
        assert loggers(tmp_path, False) is False


def test_every_global_generator_is_restored():
    draws = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        with preserve_random_state():
            if draws:
                random.random()
                np.random.rand()  # noqa: NPY002
                torch.rand(3)
        draws.append((random.random(), np.random.rand(), torch.rand(()).item()))  # noqa: NPY002
    assert draws[0] == draws[1]


class TestPrecision:
    def test_no_bfloat16_where_the_cpu_has_none(self, monkeypatch):
        monkeypatch.setattr(preparation, "cpu_has_bfloat16", lambda: False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert preparation.chosen_precision(None, "cpu") == "32-true"
        with pytest.warns(RandomSetWarning, match="no native bfloat16"):
            assert preparation.chosen_precision("bf16-mixed", "cpu") == "32-true"
        assert preparation.chosen_precision("64-true", "cpu") == "64-true"
        monkeypatch.setattr(preparation, "cpu_has_bfloat16", lambda: True)
        assert preparation.chosen_precision(None, "cpu") == "bf16-mixed"
        assert preparation.chosen_precision("bf16-mixed", "cpu") == "bf16-mixed"

    def test_old_and_new_gpus(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        for new, expected in ((True, "bf16-mixed"), (False, "16-mixed")):
            monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda new=new, **_: new)
            assert preparation.chosen_precision(None, "auto") == expected

    def test_mixed_precision_trains(self, digits, monkeypatch):
        model, seen = network(), set()
        layer = next(part for part in model.backbone.modules() if isinstance(part, nn.Linear))
        layer.register_forward_hook(lambda part, _, output: seen.add(output.dtype) if part.training else None)
        monkeypatch.setattr(preparation, "cpu_has_bfloat16", lambda: True)
        report = quick(model, *digits, precision="bf16-mixed", limit_train_batches=3)
        assert torch.tensor(report.last["loss"]).isfinite()
        assert seen == {torch.bfloat16}
        assert layer.weight.dtype == torch.float32
