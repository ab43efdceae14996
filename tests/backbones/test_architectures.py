"""The backbones that ship, by one contract, and the head."""

import json

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetHead, backbones
from randomset.errors import BudgetError, RandomSetError, ShapeError

CASES = {
    "mlp": (lambda: backbones.mlp(12, (16, 8), dropout=0.1), (12,)),
    "small_cnn": (lambda: backbones.small_cnn(1, 28), (1, 28, 28)),
    "small_cnn colour": (lambda: backbones.small_cnn(3, 32, width=8, dropout=0.2), (3, 32, 32)),
    "resnet18": (lambda: backbones.resnet(18, 3, width=4), (3, 32, 32)),
    "resnet50": (lambda: backbones.resnet(50, 1, width=4), (1, 16, 16)),
    "wide_resnet": (lambda: backbones.wide_resnet(10, 1), (3, 32, 32)),
}


@pytest.mark.parametrize("case", CASES)
class TestContract:
    def test_yields_as_many_features_as_it_tells(self, case):
        make, shape = CASES[case]
        assert make().eval()(torch.randn(2, *shape)).shape == (2, make().num_features)

    def test_every_weight_gets_a_gradient(self, case):
        make, shape = CASES[case]
        backbone = make().train()
        torch.manual_seed(0)
        (backbone(torch.randn(8, *shape)) ** 2).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in backbone.parameters())

    def test_is_built_again_from_what_json_keeps(self, case):
        make, _ = CASES[case]
        first = make()
        spec = json.loads(json.dumps(first.spec))
        second = backbones.build(spec["name"], **spec["options"])
        second.load_state_dict(first.state_dict())
        assert second.spec == first.spec

    def test_the_seed_decides_the_weights(self, case):
        make, _ = CASES[case]
        states = []
        for _ in range(2):
            torch.manual_seed(3)
            states.append(make().state_dict())
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_sizes_of_the_known_architectures():
    """Parameters of the CIFAR ResNet-18 and of WRN-28-10, without their classifiers."""

    def count(module):
        return sum(p.numel() for p in module.parameters())

    with torch.device("meta"):
        assert count(backbones.resnet(18)) == 11_168_832  # 11,173,962 with a linear layer to ten classes
        assert (
            count(backbones.wide_resnet()) == 36_479_194 - 6_410
        )  # as its authors count, without the linear layer
        assert count(backbones.resnet(50)) == 23_500_352


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: backbones.resnet(34), "18 or 50"),
        (lambda: backbones.wide_resnet(27), "28"),
        (lambda: backbones.mlp(4, ()), "at least one width"),
        (lambda: backbones.small_cnn(1, 3), "at least 4 pixels"),
        (lambda: backbones.build("vgg"), "one of mlp"),
        (lambda: backbones.build("mlp", depth=3), "in_features, widths, dropout"),
    ],
)
def test_what_cannot_be_built(call, message):
    with pytest.raises(RandomSetError, match=message):
        call()


class TestHead:
    budget = Budget.from_sets([{0, 1}, {0, 1, 2, 3}], 4)

    def test_is_linear_by_default(self):
        head = RandomSetHead(8, self.budget)
        linear = head.layers[0]
        assert isinstance(linear, nn.Linear)
        features = torch.randn(3, 5, 8)
        assert torch.equal(head(features), linear(features))
        assert linear.weight.abs().max() < 0.1 / 8**0.5
        assert head(features).shape == (3, 5, 6)

    def test_the_papers_layers(self):
        head = RandomSetHead(2048, self.budget, hidden=(1024, 512))
        shapes = [(m.in_features, m.out_features) for m in head.layers if isinstance(m, nn.Linear)]
        assert shapes == [(2048, 1024), (1024, 512), (512, 6)]
        assert sum(isinstance(m, nn.ReLU) for m in head.layers) == 2

    def test_starts_at_the_beliefs_of_ignorance(self):
        head = RandomSetHead(8, self.budget, hidden=(4,))
        assert head.layers[-1].bias.sigmoid().tolist() == pytest.approx([0.25] * 4 + [0.5, 0.999], abs=1e-6)

    def test_dropout_acts_in_training_only(self):
        head = RandomSetHead(64, self.budget, dropout=0.5)
        x = torch.ones(1, 64)
        assert not torch.equal(head.train()(x), head(x))
        assert torch.equal(head.eval()(x), head(x))

    def test_a_state_of_another_budget_is_refused(self):
        other = RandomSetHead(8, Budget.from_sets([{0, 2}, {0, 1, 2, 3}], 4))
        with pytest.raises(BudgetError, match="another budget"):
            RandomSetHead(8, self.budget).load_state_dict(other.state_dict())

    def test_mistakes(self):
        with pytest.raises(BudgetError, match="no budget"):
            RandomSetHead(8, 10)
        with pytest.raises(RandomSetError, match="positive whole numbers"):
            RandomSetHead(8, self.budget, hidden=(0,))
        with pytest.raises(ShapeError, match=r"\(2, 7\).*\(…, 8\)"):
            RandomSetHead(8, self.budget)(torch.zeros(2, 7))
