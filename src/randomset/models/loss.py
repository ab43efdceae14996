"""The losses: binary cross-entropy on beliefs, with terms that keep the masses valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget
from randomset.belief.labels import (
    belief_from_classes,
    belief_from_label_masses,
    belief_from_label_sets,
    belief_from_probabilities,
)
from randomset.belief.operators import BudgetOperators
from randomset.belief.sets_first import over_sets
from randomset.belief.transforms import belief_from_mass
from randomset.errors import LabelError, RandomSetError, ShapeError

if TYPE_CHECKING:
    from randomset.models.base import Objective
    from randomset.models.random_set import RandomSetNetwork

__all__ = ["NormalisedMassLoss", "RandomSetLoss", "belief_objective", "logit_objective"]

Numbers = Sequence[float] | Tensor
AUXILIARY = 0.4
"""How much the auxiliary output of an Inception counts; torchvision trained its own so."""


class _BeliefLoss(nn.Module):
    """What both losses share: targets, weights, and the mean over the batch of all processes."""

    class_weights: Tensor | None
    set_weights: Tensor | None
    takes_pairs = True
    """Whether the outputs of a network with an auxiliary head may come as they are."""

    def __init__(
        self,
        budget: Budget,
        *,
        class_weights: Numbers | None = None,
        set_weights: Numbers | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        self.operators = BudgetOperators(budget)
        self.ignore_index = ignore_index
        self.terms: dict[str, Tensor] = {}
        """The last call's loss and terms by name, without gradient, over the batch of all processes."""
        for name, weights, count in (
            ("class_weights", class_weights, budget.num_classes),
            ("set_weights", set_weights, len(budget)),
        ):
            checked = None if weights is None else _checked_weights(weights, count, name)
            self.register_buffer(name, checked, persistent=False)

    @property
    def budget(self) -> Budget:
        """The budget whose sets the logits are about."""
        return self.operators.budget

    def forward(
        self, logits: Tensor | tuple[Tensor, Tensor], labels: Any, weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of belief logits (B × |O|).

        Args:
            logits: the network's outputs, in any floating type.
            labels: one for each sample: class indices (B), a boolean mask of set-valued labels (B × N) or a
                list of sets, probabilities of the classes (B × N), or masses over the sets (B × |O|).
            weight: how much each sample counts (B).

        A pair of logits is that of a network with an auxiliary output, whose loss counts 0.4.
        """
        if isinstance(logits, tuple):
            second = AUXILIARY * self(logits[1], labels, weight)
            return self(logits[0], labels, weight) + second  # the terms are those of the main output
        if logits.dim() != 2 or logits.shape[1] != len(self.budget):
            raise ShapeError(
                "the logits do not fit the budget",
                got=str(tuple(logits.shape)),
                expected=f"(batch, {len(self.budget)}) for {self.budget}",
            )
        logits = logits.float() if logits.dtype.itemsize < 4 else logits
        with torch.autocast(logits.device.type, enabled=False):  # masses are differences of beliefs
            target, weight = self._target(logits, labels, weight)
            return self._loss(logits, target, weight)

    def _loss(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _target(self, logits: Tensor, labels: Any, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Encode the labels as beliefs, and gather what makes one sample count more than another."""
        n, dtype = self.budget.num_classes, logits.dtype
        if not isinstance(labels, Tensor):
            labels = self.budget.mask_from_sets(labels).to(logits.device)
        if len(labels) != len(logits) or labels.dim() > 2:
            raise LabelError(
                "the labels do not match the logits",
                got=f"labels {tuple(labels.shape)} for logits {tuple(logits.shape)}",
                expected="one label for each sample",
            )
        if labels.dim() == 2 and labels.dtype != torch.bool and not labels.is_floating_point():
            raise LabelError(
                "labels over the classes are whole numbers",
                got=str(labels.dtype),
                expected="truth values for sets, floats for probabilities",
                remedy="Convert them with .bool() or .float()",
            )
        weight = None if weight is None else _sample_weights(torch.as_tensor(weight), logits)
        if labels.dim() == 1:
            used = labels != self.ignore_index
            if not used.all():
                labels = labels.where(used, 0)
                weight = used.to(dtype) if weight is None else weight * used
            target = belief_from_classes(labels, self.operators, dtype)
            shares = nn.functional.one_hot(labels.long(), n).to(dtype) if self._weighs_classes else None
        elif labels.dtype == torch.bool:
            target = belief_from_label_sets(labels, self.operators, dtype)
            shares = labels / labels.sum(1, keepdim=True)
        elif labels.shape[1] == n:
            target = belief_from_probabilities(labels, self.operators).to(dtype)
            shares = labels
        else:
            target = belief_from_label_masses(labels, self.operators).to(dtype)
            whole = self.operators.complete if labels.shape[1] > len(self.budget) else self.operators
            shares = over_sets(lambda m: whole.sum_per_class(m, shared=True), labels)
        if self.class_weights is not None and shares is not None:
            by_class = shares.to(dtype) @ self.class_weights.to(dtype)
            weight = by_class if weight is None else weight * by_class
        return target, weight

    @property
    def _weighs_classes(self) -> bool:
        return self.class_weights is not None

    def _entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy, mean over the sets: (B × |O|) → (B)."""
        target = target.contiguous()  # in the layout of the logits it costs two thirds
        each = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return self._mean_over_sets(each)

    def _mean_over_sets(self, each: Tensor) -> Tensor:
        if self.set_weights is None:
            return each.mean(1)
        set_weights = self.set_weights.to(each.dtype)
        return each @ set_weights / set_weights.sum()

    def _batch_means(self, weight: Tensor | None, *each: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Weighted means over the batch of all processes, twice: for the gradient, and as numbers.

        Engines average the gradients of processes. So that their average is the gradient of the mean over
        the whole batch, a process scales its part of the sum by (processes / weight of all).
        """
        count = each[0].new_full((), len(each[0])) if weight is None else weight.sum()
        sums = [one.sum() if weight is None else (one * weight).sum() for one in each]
        totals, processes = torch.stack([*sums, count]).detach(), 1
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if distributed and self.training and torch.is_grad_enabled():
            processes = torch.distributed.get_world_size()
            torch.distributed.all_reduce(totals)
        whole = totals[-1].where(totals[-1] > 0, 1)  # a batch of ignored labels gives zero
        return [one * processes / whole for one in sums], list(totals[:-1] / whole)


class RandomSetLoss(_BeliefLoss):
    """The paper's loss, L = BCE + α · M_r + β · M_s (Eq. 5–7).

    BCE = mean over samples and sets of the binary cross-entropy of Bel(A), computed from logits

    M_r = mean over samples of Σ_A max(0, −m(A))

    M_s = max(0, mean over samples of Σ_A m(A) − 1), the mean over the batch of all processes

    Args:
        budget: the sets that the logits are about.
        alpha: the weight α of M_r.
        beta: the weight β of M_s.
        class_weights: how much samples of each class count (N); a sample of several classes counts as their
            mean.
        set_weights: how much each set counts in the BCE (|O|).
        ignore_index: samples with this class index count nothing.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> loss = RandomSetLoss(budget)
    >>> value = loss(torch.zeros(2, 4), torch.tensor([0, 2]))  # every belief 0.5, {cat, dog} has mass −0.5
    >>> {name: round(term.item(), 4) for name, term in loss.terms.items()}
    {'loss': 0.6936, 'bce': 0.6931, 'M_r': 0.5, 'M_s': 0.0}
    """

    def __init__(
        self,
        budget: Budget,
        alpha: float = 1e-3,
        beta: float = 1e-3,
        *,
        class_weights: Numbers | None = None,
        set_weights: Numbers | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(
            budget, class_weights=class_weights, set_weights=set_weights, ignore_index=ignore_index
        )
        for name, value in (("alpha", alpha), ("beta", beta)):
            if not value >= 0:
                raise RandomSetError(f"{name} is not a weight", got=value, expected="zero or more")
        self.alpha, self.beta = alpha, beta

    def _loss(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        mass = over_sets(self.operators.invert_subsets, logits.sigmoid(), self.operators.footprint)
        negative = mass.clamp_max(0).sum(1).neg()
        parts, means = self._batch_means(weight, self._entropy(logits, target), negative, mass.sum(1))
        bce, m_r, total = parts
        # The hinge opens by the mean over all processes; what passes through it is this process's part.
        m_s = (total - 1) * (means[2] > 1)
        hinge = (means[2] - 1).clamp_min(0)
        whole = means[0] + self.alpha * means[1] + self.beta * hinge
        self.terms = {"loss": whole, "bce": means[0], "M_r": means[1], "M_s": hinge}
        return bce + self.alpha * m_r + self.beta * m_s

    def extra_repr(self) -> str:  # noqa: D102
        return f"alpha={self.alpha}, beta={self.beta}"


class NormalisedMassLoss(_BeliefLoss):
    """The paper's alternative with masses that are valid by construction (App. E), L = BCE + BCE_norm.

    BCE_norm compares the target with Bel'(A) = Σ_{B ⊆ A} m'(B), where m' = softmax(scale · m) over the budget
    and m are the masses of the predicted beliefs. The paper's scale is 1: a mass lies within about [−1, 1],
    so its softmax stays flat; a larger scale sharpens it. `masses` gives m' of any prediction.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> loss = NormalisedMassLoss(budget)
    >>> value = loss(torch.zeros(2, 4), torch.tensor([0, 2]))
    >>> {name: round(term.item(), 3) for name, term in loss.terms.items()}
    {'loss': 1.369, 'bce': 0.693, 'bce_norm': 0.676}
    """

    def __init__(
        self,
        budget: Budget,
        scale: float = 1.0,
        *,
        class_weights: Numbers | None = None,
        set_weights: Numbers | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(
            budget, class_weights=class_weights, set_weights=set_weights, ignore_index=ignore_index
        )
        if not scale > 0:
            raise RandomSetError("the scale is not positive", got=scale)
        self.scale = scale

    def masses(self, logits: Tensor) -> Tensor:
        """Return m', valid masses over the budget's sets: (…, |O|) → (…, |O|)."""
        mass = over_sets(self.operators.invert_subsets, logits.sigmoid(), self.operators.footprint)
        return (self.scale * mass).softmax(-1)

    def _loss(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        tiny = torch.finfo(logits.dtype).eps  # Bel'(Θ) is 1 but for rounding
        belief = belief_from_mass(self.masses(logits), self.operators).clamp(tiny, 1 - tiny)
        normalised = nn.functional.binary_cross_entropy(belief, target, reduction="none")
        norm = self._mean_over_sets(normalised)
        parts, means = self._batch_means(weight, self._entropy(logits, target), norm)
        self.terms = {"loss": means[0] + means[1], "bce": means[0], "bce_norm": means[1]}
        return parts[0] + parts[1]

    def extra_repr(self) -> str:  # noqa: D102
        return f"scale={self.scale}"


def _checked_weights(weights: Numbers, count: int, name: str) -> Tensor:
    found = torch.as_tensor(weights, dtype=torch.float64)
    if found.shape != (count,) or not (found >= 0).all() or not 0 < found.sum() < torch.inf:
        raise ShapeError(
            f"the {name.replace('_', ' ')} do not fit",
            got=f"shape {tuple(found.shape)}, from {found.min().item():g} to {found.max().item():g}"
            if found.numel()
            else "nothing",
            expected=f"{count} numbers of zero or more, not all zero",
        )
    return found.float()


def _sample_weights(weight: Tensor, logits: Tensor) -> Tensor:
    if weight.shape != logits.shape[:1]:
        raise ShapeError(
            "there is not one weight for each sample",
            got=str(tuple(weight.shape)),
            expected=f"({len(logits)},)",
        )
    if not torch.compiler.is_compiling() and not ((weight >= 0) & weight.isfinite()).all():
        raise RandomSetError(
            "a weight is negative or not finite", got=f"from {weight.min().item()} to {weight.max().item()}"
        )
    return weight.to(logits)


def belief_objective(
    network: RandomSetNetwork, alpha: float = 1e-3, beta: float = 1e-3, clip: float | None = None
) -> Objective:
    """Attack the loss that a random-set network learns by, of each sample on its own.

    With `clip`, the cross-entropy is computed from beliefs that are clipped to [clip, 1 − clip]: where the
    network is sure, this loss is flat, and its gradient tells an attacker nothing.
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
    """Attack belief logits themselves: those of sets without the label minus those of sets with it."""

    def objective(inputs: Tensor, labels: Tensor) -> Tensor:
        logits = network(inputs)
        inside = belief_from_classes(labels, network.operators, logits.dtype)
        return (logits * (1 - 2 * inside)).mean(1)

    return objective
