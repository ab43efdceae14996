"""What networks of other libraries share: channels that are repeated, a second output in training."""

import pytest
import torch
from torch import nn

from randomset.backbones.base import LibraryBackbone
from randomset.errors import ShapeError


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
