"""One contract for our own architectures; what networks of other libraries share."""

import json

import pytest
import torch
from torch import nn

from randomset import backbones
from randomset.backbones.base import LibraryBackbone, width_of
from randomset.errors import RandomSetError, ShapeError


class TwoOutputs(nn.Module):
    def forward(self, inputs):
        features = inputs.mean((2, 3))
        return (features, features + 1) if self.training else features


def test_a_single_channel_is_repeated():
    backbone, grey = LibraryBackbone(nn.Conv2d(3, 4, 2), 4 * 49, channels=3), torch.rand(2, 1, 8, 8)
    assert torch.equal(backbone(grey), backbone(grey.expand(-1, 3, -1, -1)))
    assert backbone(grey).shape == (2, 4 * 49)
    with pytest.raises(ShapeError, match=r"channels; got \(2, 4, 8, 8\); expected \(batch, 3, …\)"):
        backbone(torch.rand(2, 4, 8, 8))


def test_the_auxiliary_output_is_returned_in_training_only():
    backbone = LibraryBackbone(TwoOutputs(), 3)
    backbone.auxiliary_features = 3
    main, auxiliary = backbone.train()(torch.rand(2, 3, 4, 4))
    assert torch.equal(auxiliary, main + 1)
    assert backbone.eval()(torch.rand(2, 3, 4, 4)).shape == (2, 3)


def test_an_mlp_with_its_inputs_as_features():
    torch.manual_seed(0)
    backbone, inputs = backbones.mlp(12, (16, 8), keep_inputs=True).eval(), torch.randn(5, 3, 4)
    torch.manual_seed(0)
    plain = backbones.mlp(12, (16, 8)).eval()
    assert torch.equal(backbone(inputs), torch.cat([plain(inputs.flatten(1)), inputs.flatten(1)], 1))


CASES = {
    "mlp": (lambda: backbones.mlp(12, (16, 8), dropout=0.1), (12,)),
    "mlp with its inputs": (lambda: backbones.mlp(12, (16, 8), keep_inputs=True), (3, 4)),
    "small_cnn": (lambda: backbones.small_cnn(1, 28), (1, 28, 28)),
    "small_cnn colour": (lambda: backbones.small_cnn(3, 32, width=8, dropout=0.2), (3, 32, 32)),
    "fast_cnn": (lambda: backbones.fast_cnn(3, width=16), (3, 32, 32)),
    "fast_cnn grey": (lambda: backbones.fast_cnn(1, width=4), (1, 28, 28)),
    "resnet18": (lambda: backbones.resnet(18, 3, width=4), (3, 32, 32)),
    "resnet50": (lambda: backbones.resnet(50, 1, width=4), (1, 16, 16)),
    "wide_resnet": (lambda: backbones.wide_resnet(10, 1), (3, 32, 32)),
}


@pytest.mark.parametrize("case", CASES)
class TestContract:
    def test_returns_num_features(self, case):
        make, shape = CASES[case]
        assert make().eval()(torch.randn(2, *shape)).shape == (2, make().num_features)

    def test_every_weight_gets_a_gradient(self, case):
        make, shape = CASES[case]
        backbone = make().train()
        torch.manual_seed(0)
        (backbone(torch.randn(8, *shape)) ** 2).sum().backward()
        trained = [p for p in backbone.parameters() if p.requires_grad]
        assert trained
        assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)

    def test_is_rebuilt_from_its_spec_in_json(self, case):
        make, _ = CASES[case]
        first = make()
        spec = json.loads(json.dumps(first.spec))
        second = backbones.build(spec["name"], **spec["options"])
        second.load_state_dict(first.state_dict())
        assert second.spec == first.spec

    def test_the_seed_determines_the_weights(self, case):
        make, _ = CASES[case]
        states = []
        for _ in range(2):
            torch.manual_seed(3)
            states.append(make().state_dict())
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_parameter_counts_of_known_architectures():
    """Parameters of the CIFAR ResNet-18 and of WRN-28-10, without their classifiers."""

    def count(module):
        return sum(p.numel() for p in module.parameters())

    with torch.device("meta"):
        assert count(backbones.resnet(18)) == 11_168_832  # 11,173,962 with a linear layer for ten classes
        assert (
            count(backbones.wide_resnet()) == 36_479_194 - 6_410
        )  # the authors' count, less the linear layer
        assert count(backbones.resnet(50)) == 23_500_352


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: backbones.resnet(34), "18 or 50"),
        (lambda: backbones.wide_resnet(27), "28"),
        (lambda: backbones.mlp(4, ()), "at least one width"),
        (lambda: backbones.small_cnn(1, 3), "at least 4 pixels"),
    ],
)
def test_invalid_options(call, message):
    with pytest.raises(RandomSetError, match=message):
        call()


@pytest.mark.parametrize(
    ("backbone", "width"),
    [
        (nn.Linear(3, 7), 7),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), 4),
        (nn.Sequential(nn.Linear(3, 5), nn.Sequential(nn.LayerNorm(5), nn.Dropout())), 5),
    ],
)
def test_width_of_backbones(backbone, width):
    assert width_of(backbone) == width


def test_unknown_width():
    with pytest.raises(RandomSetError, match=r"cannot infer the number of features.*Pass in_features"):
        width_of(nn.Sequential(nn.Linear(3, 5), nn.Flatten()))
