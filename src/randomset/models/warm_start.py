"""The start of a random-set network from a trained plain network: a head that is fitted to its features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from randomset.models.head import RandomSetHead

__all__ = ["fit_head"]

_STEPS, _BATCH, _RATE = 150, 2048, 0.05


def fit_head(
    head: RandomSetHead,
    features: Tensor,
    labels: Tensor,
    loss: nn.Module,
    weights: Tensor | None = None,
    seed: int = 0,
) -> None:
    """Fit a head to features (n × F) of the training samples, while the backbone stays as it is.

    A network whose head starts at random would spend its first epochs on what the plain network has learned
    already, and disturb its features on the way. Takes 150 steps of Adam on standardised features, about as
    long as a tenth of an epoch; the standardisation is then made part of the first layer.
    """
    first = next(layer for layer in head.layers if isinstance(layer, nn.Linear))
    centre, scale = features.mean(0), features.std(0, correction=0)
    scale = scale.clamp_min(max(1e-3 * float(scale.mean()), 1e-12))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(head.layers.parameters(), _RATE)
    mode = head.training, loss.training
    head.eval(), loss.eval()
    with torch.enable_grad():
        for step in range(_STEPS):
            for group in optimizer.param_groups:
                group["lr"] = _RATE * (1 + math.cos(math.pi * step / _STEPS)) / 2
            rows = torch.randint(len(features), (min(_BATCH, len(features)),), generator=generator)
            outputs = head((features[rows] - centre) / scale)
            own = () if weights is None else (weights[rows],)
            optimizer.zero_grad()
            loss(outputs, labels[rows], *own).backward()
            optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        first.weight.div_(scale)
        first.bias.sub_(first.weight @ centre)
    head.train(mode[0]), loss.train(mode[1])
