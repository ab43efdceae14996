"""Objectives of a random-set network that attacks maximise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from randomset.belief.sums import over_sets
from randomset.belief.transforms import belief_from_classes

if TYPE_CHECKING:
    from randomset.models.base import Objective
    from randomset.models.random_set import RandomSetNetwork

__all__ = ["belief_objective", "logit_objective"]


def belief_objective(
    network: RandomSetNetwork, alpha: float = 1e-3, beta: float = 1e-3, clip: float | None = None
) -> Objective:
    """Objective: the training loss of a random-set network, per sample.

    With `clip`, the cross-entropy is computed from beliefs clipped to [clip, 1 − clip]. Where the network is
    confident, this loss is flat, and its gradient does not help an attacker.
    """
    operators = network.operators

    def objective(inputs: Tensor, labels: Tensor) -> Tensor:
        logits = network(inputs)
        target = belief_from_classes(labels, operators, logits.dtype)
        if clip is None:
            each = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        else:
            belief = logits.sigmoid().clamp(clip, 1 - clip)
            each = nn.functional.binary_cross_entropy(belief, target, reduction="none")
        mass = over_sets(operators.invert_subsets, logits.sigmoid(), operators.footprint)
        return each.mean(1) + alpha * mass.clamp_max(0).sum(1).neg() + beta * (mass.sum(1) - 1).clamp_min(0)

    return objective


def logit_objective(network: RandomSetNetwork) -> Objective:
    """Objective: mean belief logits of the sets without the label minus those of the sets with it."""

    def objective(inputs: Tensor, labels: Tensor) -> Tensor:
        logits = network(inputs)
        inside = belief_from_classes(labels, network.operators, logits.dtype)
        return (logits * (1 - 2 * inside)).mean(1)

    return objective
