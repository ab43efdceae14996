"""Deep ensembles (Lakshminarayanan et al. 2017): networks trained with different seeds and data orders."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from randomset._core.batches import call_with
from randomset.errors import RandomSetError
from randomset.models.base import Classifier
from randomset.models.prediction import Prediction
from randomset.models.softmax import Softmax
from randomset.models.storage import classifier_class, methods, register

if TYPE_CHECKING:
    from randomset.models.storage import Builder
    from randomset.models.training_job import TrainingJob

__all__ = ["Ensemble", "ensemble_of"]

NUM_MEMBERS = 5

_E = TypeVar("_E", bound="Ensemble")


@register("ensemble")
class Ensemble(Classifier):
    """The mean of the members' probabilities; mutual information measures their disagreement.

    >>> from randomset.models.softmax import Softmax
    >>> members = [Softmax(nn.Linear(4, 8), 3, in_features=8) for _ in range(2)]
    >>> sorted(Ensemble(members).predict(torch.randn(5, 4)).scores)
    ['1 - maximum', 'entropy', 'mutual information']
    """

    has_backbone = False
    member_class: ClassVar[type[Classifier]] = Softmax
    """The class of the members that `train_on` trains."""
    members: Any  # nn.ModuleList, which does not know the type of its modules

    def __init__(self, members: Sequence[Classifier]) -> None:
        if not members:
            raise RandomSetError("an ensemble needs at least one member", got="no members")
        first = members[0]
        if len({member.num_classes for member in members}) > 1:
            counts = [member.num_classes for member in members]
            raise RandomSetError("the members must have the same number of classes", got=counts)
        super().__init__(nn.Identity(), first.num_classes, in_features=first.in_features)
        self.members = nn.ModuleList(members)
        spec = first.input_spec
        if spec is not None and all(member.input_spec == spec for member in members):
            self.notes = spec.to_notes()

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the logarithm of the mean probabilities (B × N)."""
        p = self.predict_batch(named or inputs[0]).probabilities
        return p.clamp_min(torch.finfo(torch.float32).tiny).log()

    def predict_batch(self, inputs: Any) -> Prediction:
        """Average the members' probabilities."""
        samples = [member.probabilities(call_with(member, inputs)) for member in self.members]
        return Prediction.from_samples(torch.stack(samples))

    @classmethod
    def train_on(cls: type[_E], job: TrainingJob) -> _E:
        """Train the members one after another, each in a folder of its own; they share one budget, if any."""
        members: list[Any] = []
        count = NUM_MEMBERS if job.config.members is None else job.config.members
        for number in range(count):
            job.log(f"Member {number + 1} of {count} …")
            part = job.part(f"member-{number}", number)
            part.budget = getattr(members[0], "budget", None) if members else job.budget
            members.append(cls.member_class.train_on(part))
        return cls(members)

    def description(self) -> dict[str, Any]:
        """Return the descriptions of the members, and the options."""
        members = [member.description() for member in self.members]
        return {"method": self.method, "members": members, "options": self.options}

    @classmethod
    def from_description(cls: type[_E], description: dict[str, Any], builder: Builder) -> _E:
        """Build the members; each gets a copy of a backbone that the user passes."""
        members = [copy.deepcopy(builder.model(member)) for member in description["members"]]
        return cls(members, **description.get("options", {}))


def ensemble_of(method: str) -> str:
    """Return the method that trains an ensemble of a method's networks, or the method itself if it does.

    >>> ensemble_of("softmax"), ensemble_of("ensemble")
    ('ensemble', 'ensemble')
    """
    cls = classifier_class(method)
    if issubclass(cls, Ensemble):
        return method
    kinds = [kind for kind in map(classifier_class, methods()) if issubclass(kind, Ensemble)]
    for kind in kinds:
        if kind.member_class is cls:
            return kind.method
    raise RandomSetError(
        "this method has no members",
        got=f"members for {method}",
        expected=f"one of {', '.join(kind.method for kind in kinds)}",
    )
