"""A small network and its inputs, which the tests of several files share."""

import torch

from randomset import Budget, RandomSetNetwork, backbones

BUDGET = Budget.from_sets([{"cat", "dog"}, {"dog", "car"}], ["cat", "dog", "car"])


def network(**options):
    torch.manual_seed(0)
    return RandomSetNetwork(backbones.mlp(4, (8,), dropout=0.5), BUDGET, **options)


X = torch.randn(10, 4, generator=torch.Generator().manual_seed(1))


IMAGES = torch.randn(2, 1, 8, 8)
