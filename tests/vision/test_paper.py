"""The paper's own configuration takes its first training step: ResNet-50 on images of 224 × 224."""

import torch
from torch.utils.data import TensorDataset

from randomset import Budget, RandomSetLoss, RandomSetNetwork, fit
from randomset.training.preparation import backbone_for
from reproduction import SCALES, Workshop


def test_the_first_step_at_full_scale(tmp_path):
    config = Workshop(SCALES["full"], tmp_path).config("cifar10")
    torch.manual_seed(0)
    images, labels = torch.rand(4, 3, 224, 224), torch.arange(4)
    budget = Budget.from_sets([{0, 1}, {2, 3}], 10)
    network = RandomSetNetwork(backbone_for(config.backbone, images), budget, hidden=config.hidden)
    assert [layer.out_features for layer in network.head.layers if isinstance(layer, torch.nn.Linear)] == [
        *(1024, 512),
        12,
    ]
    before = torch.cat([p.detach().flatten() for p in network.parameters()])
    fit(
        network,
        TensorDataset(images, labels),
        loss=RandomSetLoss(budget, config.alpha, config.beta),
        recipe=config.plan(),
        max_steps=1,
        progress=False,
    )
    after = torch.cat([p.detach().flatten() for p in network.parameters()])
    assert after.isfinite().all()
    moved = (after - before).abs()
    assert moved.max() <= 1.01e-3  # one step of Adam at the paper's rate
    assert (moved > 0).double().mean() > 0.9
