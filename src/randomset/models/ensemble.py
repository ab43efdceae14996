"""Deep ensembles (Lakshminarayanan et al. 2017): networks trained with different seeds and data orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from randomset._core.batches import call_with
from randomset.errors import RandomSetError
from randomset.models.base import Classifier
from randomset.models.prediction import Prediction
from randomset.models.softmax import Softmax
from randomset.models.storage import register

if TYPE_CHECKING:
    from randomset.models.storage import Builder
    from randomset.models.training_job import TrainingJob

__all__ = ["Ensemble"]

NUM_MEMBERS = 5


@register("ensemble")
class Ensemble(Classifier):
    """The mean of the members' probabilities; mutual information measures their disagreement.

    >>> from randomset.models.softmax import Softmax
    >>> members = [Softmax(nn.Linear(4, 8), 3, in_features=8) for _ in range(2)]
    >>> sorted(Ensemble(members).predict(torch.randn(5, 4)).scores)
    ['1 - maximum', 'entropy', 'mutual information']
    """

    has_backbone = False

    def __init__(self, members: Sequence[Classifier]) -> None:
        if not members:
            raise RandomSetError("an ensemble needs at least one member", got="no members")
        first = members[0]
        if len({member.num_classes for member in members}) > 1:
            counts = [member.num_classes for member in members]
            raise RandomSetError("the members must have the same number of classes", got=counts)
        super().__init__(nn.Identity(), first.num_classes, in_features=first.in_features)
        self.members = nn.ModuleList(members)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the logarithm of the mean probabilities (B × N)."""
        p = self.predict_batch(named or inputs[0]).probabilities
        return p.clamp_min(torch.finfo(torch.float32).tiny).log()

    def predict_batch(self, inputs: Any) -> Prediction:
        """Average the members' probabilities."""
        samples = [member.probabilities(call_with(member, inputs)) for member in self.members]  # type: ignore[operator]
        return Prediction.from_samples(torch.stack(samples))

    @classmethod
    def train_on(cls, job: TrainingJob) -> Ensemble:
        """Train the members one after another, each in a folder of its own."""
        members = []
        for number in range(NUM_MEMBERS):
            job.log(f"Member {number + 1} of {NUM_MEMBERS} …")
            members.append(Softmax.train_on(job.part(f"member-{number}", number)))
        return cls(members)

    def description(self) -> dict[str, Any]:
        """Return the descriptions of the members."""
        members: Any = self.members
        return {"method": self.method, "members": [member.description() for member in members]}

    @classmethod
    def from_description(cls, description: dict[str, Any], builder: Builder) -> Ensemble:
        """Build the members."""
        return cls([builder.model(member) for member in description["members"]])
