"""Deep ensembles (Lakshminarayanan et al. 2017): networks from different seeds and orders of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError
from randomset.models.base import Baseline, Uncertain, from_samples

__all__ = ["Ensemble"]


class Ensemble(Baseline):
    """The mean of its members' probabilities; their disagreement is the mutual information.

    >>> from randomset.models.softmax import Softmax
    >>> members = [Softmax(nn.Linear(4, 8), 3, in_features=8) for _ in range(2)]
    >>> sorted(Ensemble(members).predict(torch.randn(5, 4))[1])
    ['mutual information']
    """

    method: ClassVar[str] = "ensemble"

    def __init__(self, members: Sequence[Baseline]) -> None:
        if not members:
            raise RandomSetError("an ensemble needs members", got="none")
        first = members[0]
        if len({member.num_classes for member in members}) > 1:
            raise RandomSetError("the members know different classes")
        super().__init__(nn.Identity(), first.num_classes, in_features=first.in_features)
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Any) -> Tensor:
        """Return the logarithm of the mean probabilities (B × N)."""
        return self.uncertain(inputs)[0].clamp_min(torch.finfo(torch.float32).tiny).log()

    def uncertain(self, inputs: Any) -> Uncertain:
        """Average the members."""
        return from_samples(torch.stack([member.probabilities(member(inputs)) for member in self.members]))  # type: ignore[operator]
