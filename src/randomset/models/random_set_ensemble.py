"""RandomSetEnsemble: random-set networks trained with different seeds and data orders."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from randomset._core.batches import call_with
from randomset.belief import fusion
from randomset.belief.budget import Budget
from randomset.belief.measures import mutual_information
from randomset.belief.random_set import RandomSet
from randomset.belief.text import FAMILIAR
from randomset.errors import FileFormatError, RandomSetError
from randomset.models.base import Classifier
from randomset.models.calibration import PignisticTemperature, calibration_from_spec, calibration_from_state
from randomset.models.ensemble import Ensemble
from randomset.models.random_set import RandomSetNetwork
from randomset.models.storage import register
from randomset.models.temperature import (
    CalibrationReport,
    calibration_report,
    fit_temperature,
    label_outputs,
    measured,
)

if TYPE_CHECKING:
    from randomset.models.storage import Builder
    from randomset.models.training_job import TrainingJob

__all__ = ["RandomSetEnsemble"]

logger = logging.getLogger(__name__)

Combination = Literal["mean", "dempster"]

_TRUST = 0.999
"""Factor of the reliabilities in Dempster's rule, as members may be certain of different classes."""


@register("random-set-ensemble")
class RandomSetEnsemble(Ensemble):
    """Random-set networks whose masses are averaged: m(A) = mean over the members of m₁(A), …, m_S(A).

    Each member first discounts its masses by its own reliability r. With m'ᵢ a member's masses before that,
    the mean is discounted by the mean of the reliabilities, which is the reliability of the prediction:

    m(A) = mean of rᵢ m'ᵢ(A) for A ≠ Θ, and 1 − mean of rᵢ more on Θ

    Lower and upper probabilities and BetP are the means of the members'. One more score is their
    disagreement, the mutual information of their BetP. It is computed before their discounting, since all
    members that know nothing agree:

    I = H(mean BetPᵢ) − mean H(BetPᵢ)

    With `combination="dempster"`, the members are combined by Dempster's rule after their discounting. It
    treats them as independent sources, which networks trained on the same data are not, so agreement makes
    the prediction more certain than each member.

    Args:
        members: trained random-set networks for the same classes. If their budgets differ, the prediction is
            over the sets of all of them.
        combination: "mean" or "dempster".

    >>> from torch import nn
    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> members = [RandomSetNetwork(nn.Linear(4, 8), budget) for _ in range(2)]
    >>> answer = RandomSetEnsemble(members).predict(torch.randn(5, 4))
    >>> answer.lower.shape, answer.disagreement.shape
    (torch.Size([5, 3]), torch.Size([5]))
    """

    bounded = True
    chooses_sets = True
    builds_on_meta = False  # the operators of a budget are computed from its sets
    member_class = RandomSetNetwork

    calibration: PignisticTemperature | None

    def __init__(self, members: Sequence[Classifier], combination: Combination = "mean") -> None:
        super().__init__(members)
        if combination not in get_args(Combination):
            raise RandomSetError(
                "unknown combination", got=combination, expected=" or ".join(get_args(Combination))
            )
        if other := [type(member).__name__ for member in members if not isinstance(member, RandomSetNetwork)]:
            raise RandomSetError(
                "the members must be random-set networks",
                got=other[0],
                remedy="Wrap softmax networks first, with randomset.wrap, or use Ensemble",
            )
        classes: list[Any] = [member.classes for member in members]
        if different := [names for names in classes if names != classes[0]]:
            raise RandomSetError(
                "the members have different classes", got=repr(different[0]), expected=repr(classes[0])
            )
        self.combination, self.calibration = combination, None

    # -- parts ----------------------------------------------------------------------------------

    @cached_property
    def budget(self) -> Budget:
        """The sets of the prediction: those of all members; for Dempster's rule, and their intersections."""
        joint = fusion.joint_budget([member.budget for member in self.members])
        if self.combination == "dempster":
            return fusion.intersection_closure(joint.with_universal_set())
        return joint

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The names of the classes, in label order."""
        return self.budget.classes

    @property
    def familiar_from(self) -> float | None:
        """The mean of the members' limits; None if no member has a reliability."""
        limits = [member.familiar_from for member in self.members]
        if all(limit is None for limit in limits):
            return None
        return fmean(FAMILIAR if limit is None else limit for limit in limits)

    @property
    def options(self) -> dict[str, Any]:
        """Further constructor arguments, JSON-serialisable."""
        return {"combination": self.combination}

    # -- prediction -----------------------------------------------------------------------------

    def predict(
        self, inputs: Any, *, batch_size: int = 256, progress: bool | None = None, **options: Any
    ) -> RandomSet:
        """Predict a random set for each input: see `Classifier`.

        Options are `calibrated` and those of the members: `discounted` and `repair`.
        """
        return super().predict(inputs, batch_size=batch_size, progress=progress, **options)  # type: ignore[return-value]

    def predict_batch(self, inputs: Any, *, calibrated: bool = True, **options: Any) -> RandomSet:  # type: ignore[override]
        """Predict one batch, with the calibration and the reliabilities unless they are switched off."""
        pairs = [
            member.answers(call_with(member.features, inputs), calibrated=calibrated, **options)
            for member in self.members
        ]
        disagreement = mutual_information(torch.stack([before.pignistic for before, _ in pairs]))
        first, *others = (answer for _, answer in pairs)
        combined = mean = first.combine(*others, rule="mean")
        if self.combination == "dempster":
            first, *others = (a.with_mass(fusion.discount(a.mass, a.budget, _TRUST)) for _, a in pairs)
            combined = first.combine(*others, rule="dempster")
        about = (mean._reliability, mean._familiar_from, disagreement)
        answer = RandomSet(combined.mass, combined._family, combined.validity, *about)
        return self.calibration.adjusted(answer) if calibrated and self.calibration is not None else answer

    # -- after training -------------------------------------------------------------------------

    def calibrate(self, data: Any, **options: Any) -> CalibrationReport:
        """Fit a temperature of the combined BetP to held-out data and keep it: see `randomset.calibrate`.

        The members keep their own calibration. The mean of calibrated members is less confident than it is
        accurate, since each of them makes other errors.
        """
        self.calibration = None
        log_p, target = label_outputs(self, data, **options)
        before = RandomSet.from_mass(log_p.softmax(-1), Budget.singletons(self.num_classes))

        def adjusted(temperature: Any) -> Tensor:
            return PignisticTemperature(temperature).to(log_p.device).adjusted(before).pignistic

        chosen = fit_temperature(lambda t: measured(adjusted(t), target)[0], len(target))
        self.calibration = PignisticTemperature(chosen).to(self.device).eval()
        return calibration_report(
            "PignisticTemperature", chosen.tolist(), before.pignistic, adjusted(chosen), target
        )

    @classmethod
    def train_on(cls, job: TrainingJob) -> RandomSetEnsemble:
        """Train the members on the sets that the first one chooses; calibrate their combination."""
        ensemble = super().train_on(job)
        assert isinstance(ensemble, cls)
        if job.validation is not None:
            logger.info("%s", ensemble.calibrate(job.validation, progress=job.progress))
        return ensemble

    # -- files ----------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write `model.safetensors`, which is complete, and a readable copy of the budget, `budget.json`."""
        folder = super().save(folder)
        self.budget.save(folder / "budget.json")
        return folder

    def description(self) -> dict[str, Any]:
        """Return the descriptions of the members, the combination and the calibration."""
        spec = None if self.calibration is None else self.calibration.spec
        return {**super().description(), "options": self.options, "calibration": spec}

    @classmethod
    def from_description(cls, description: dict[str, Any], builder: Builder) -> RandomSetEnsemble:
        """Build the members."""
        model = super().from_description(description, builder)
        assert isinstance(model, cls)
        calibration = calibration_from_spec(description["calibration"])
        if calibration is not None and not isinstance(calibration, PignisticTemperature):
            raise FileFormatError("unknown calibration in the file", got=type(calibration).__name__)
        model.calibration = calibration
        return model

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Adopt the calibration of the state dict, or its absence."""
        calibration: Any = calibration_from_state(state_dict, f"{prefix}calibration.", self.calibration)
        self.calibration = None if calibration is None else calibration.to(self.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)
