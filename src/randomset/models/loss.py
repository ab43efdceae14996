"""The losses of random-set networks: cross-entropy on beliefs, with regularisers that keep masses valid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.belief.sums import over_sets
from randomset.belief.transforms import (
    belief_from_classes,
    belief_from_label_masses,
    belief_from_label_sets,
    belief_from_mass,
    belief_from_probabilities,
)
from randomset.errors import LabelError, RandomSetError, ShapeError

__all__ = ["NormalisedMassLoss", "RandomSetLoss"]

_TINY = 1e-6  # the smallest probability of a label in the likelihood

Numbers = Sequence[float] | Tensor
AUXILIARY = 0.4
"""Weight of Inception's auxiliary output, as in torchvision's training."""


class _BeliefLoss(nn.Module):
    """Base class: targets, weights, and the mean over the global batch (all processes).

    A set-valued label S says that the class is in S, not which one it is. Hence Bel(A) = 1 if S ⊆ A and
    Bel(A) = 0 if A ∩ S = ∅; for other sets A, the true target is 0 or 1, but unknown. Its estimate is the
    probability of A given S, from the current prediction and without gradient: BetP(A ∩ S) / BetP(S). A label
    of one class leaves nothing to estimate.
    """

    class_weights: Tensor | None
    set_weights: Tensor | None
    takes_pairs = True
    """Whether the loss accepts the pair of outputs of a network with an auxiliary head."""

    def __init__(
        self,
        budget: Budget,
        *,
        class_weights: Numbers | None = None,
        set_weights: Numbers | None = None,
        ignore_index: int = -100,
        disambiguate: bool = True,
    ) -> None:
        super().__init__()
        self.operators = BudgetOperators(budget)
        self.ignore_index, self.disambiguate = ignore_index, disambiguate
        self.terms: dict[str, Tensor] = {}
        """Detached loss terms of the last call by name, averaged over the global batch."""
        for name, weights, count in (
            ("class_weights", class_weights, budget.num_classes),
            ("set_weights", set_weights, len(budget)),
        ):
            checked = None if weights is None else _checked_weights(weights, count, name)
            self.register_buffer(name, checked, persistent=False)

    @property
    def budget(self) -> Budget:
        """The budget that the logits refer to."""
        return self.operators.budget

    def forward(
        self, logits: Tensor | tuple[Tensor, Tensor], labels: Any, weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of belief logits (B × |O|).

        Args:
            logits: the network's outputs, in any floating-point type. A network with an auxiliary output
                returns a pair; the auxiliary loss has weight 0.4.
            labels: class indices (B), a boolean mask of set-valued labels (B × N) or a list of sets, class
                probabilities (B × N), or masses over the sets (B × |O|).
            weight: sample weights (B).
        """
        if isinstance(logits, tuple):
            auxiliary = AUXILIARY * self(logits[1], labels, weight)
            return self(logits[0], labels, weight) + auxiliary  # last: `terms` are those of the main output
        if logits.dim() != 2 or logits.shape[1] != len(self.budget):
            raise ShapeError(
                "logits have the wrong shape for the budget",
                got=str(tuple(logits.shape)),
                expected=f"(batch, {len(self.budget)}) for {self.budget}",
            )
        logits = logits.float() if logits.dtype.itemsize < 4 else logits
        if not isinstance(labels, Tensor):
            labels = self.budget.mask_from_sets(labels).to(logits.device)
        with torch.autocast(logits.device.type, enabled=False):  # masses, as differences, need full precision
            target, weight = self._target(logits, labels, weight)
            return self._loss(logits, target, weight, labels)

    def _loss(self, logits: Tensor, target: Tensor, weight: Tensor | None, labels: Tensor) -> Tensor:
        raise NotImplementedError

    def _target(self, logits: Tensor, labels: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Encode the labels as beliefs, and combine sample weights, class weights and ignored labels."""
        n, dtype = self.budget.num_classes, logits.dtype
        if len(labels) != len(logits) or labels.dim() > 2:
            raise LabelError(
                "labels and logits have incompatible shapes",
                got=f"labels {tuple(labels.shape)} for logits {tuple(logits.shape)}",
                expected="one label per sample",
            )
        if labels.dim() == 2 and labels.dtype != torch.bool and not labels.is_floating_point():
            raise LabelError(
                "2-D labels have an integer dtype",
                got=str(labels.dtype),
                expected="bool for set-valued labels, floating point for probabilities",
                remedy="Convert them with .bool() or .float()",
            )
        weight = None if weight is None else _sample_weights(torch.as_tensor(weight), logits)
        if labels.dim() == 1:
            used = labels != self.ignore_index
            if not used.all():
                labels = labels.where(used, 0)
                weight = used.to(dtype) if weight is None else weight * used
            target = belief_from_classes(labels, self.operators, dtype)
            shares = None if self.class_weights is None else nn.functional.one_hot(labels.long(), n)
        elif labels.dtype == torch.bool:
            target = belief_from_label_sets(labels, self.operators, dtype)
            if self.disambiguate:
                target = target.maximum(self._expected(logits, labels))
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

    @torch.no_grad()
    def _expected(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return BetP(A ∩ S) / BetP(S) of the prediction for label sets S: (B × |O|) → (B × |O|)."""
        joint = self._pignistic(self._mass(logits)) * labels
        whole = joint.sum(1, keepdim=True)
        weights = torch.where(whole > 0, joint / whole, labels / labels.sum(1, keepdim=True))
        return over_sets(self.operators.sum_per_set, weights, self.operators.footprint).clamp(0, 1)

    def _mass(self, logits: Tensor) -> Tensor:
        """Return the masses of the predicted beliefs, valid or not."""
        return over_sets(self.operators.invert_subsets, logits.sigmoid(), self.operators.footprint)

    def _pignistic(self, mass: Tensor) -> Tensor:
        """Return BetP (B × N) of masses that are repaired as in a prediction."""
        kept = mass.clamp_min(0)
        total = kept.sum(1, keepdim=True)
        share = partial(self.operators.sum_per_class, shared=True)
        rest = (1 - total).clamp_min(0) / self.budget.num_classes
        return (over_sets(share, kept, self.operators.footprint) + rest) / total.clamp_min(1)

    def _entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """Binary cross-entropy averaged over the sets: (B × |O|) → (B)."""
        target = target.contiguous()  # matching the layout of the logits saves a third of the time
        each = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return self._mean_over_sets(each)

    def _mean_over_sets(self, each: Tensor) -> Tensor:
        if self.set_weights is None:
            return each.mean(1)
        set_weights = self.set_weights.to(each.dtype)
        return each @ set_weights / set_weights.sum()

    def _batch_means(self, weight: Tensor | None, *each: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Weighted means over the global batch: differentiable local parts, and detached values.

        Distributed training averages gradients over processes. Each process therefore scales its local sum
        by (number of processes / total weight), so that the average is the gradient of the global mean.
        """
        count = each[0].new_full((), len(each[0])) if weight is None else weight.sum()
        sums = [term.sum() if weight is None else (term * weight).sum() for term in each]
        totals, processes = torch.stack([*sums, count]).detach(), 1
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if distributed and self.training and torch.is_grad_enabled():
            processes = torch.distributed.get_world_size()
            torch.distributed.all_reduce(totals)
        whole = totals[-1].where(totals[-1] > 0, 1)  # zero loss if all labels are ignored
        return [term * processes / whole for term in sums], list(totals[:-1] / whole)


class RandomSetLoss(_BeliefLoss):
    """The paper's loss, L = BCE + α · M_r + β · M_s (Eq. 5–7), and a likelihood, γ · NLL.

    BCE = mean over samples and sets of the binary cross-entropy of Bel(A), computed from logits

    M_r = mean over samples of Σ_A max(0, −m(A))

    M_s = max(0, mean over samples of Σ_A m(A) − 1), with the mean over the global batch

    NLL = mean over samples of −log BetP(y), with BetP from the repaired masses; not in the paper. The BCE
    judges every set alone, whereas a prediction compares the classes: some weight on the likelihood makes
    predictions more accurate and better calibrated.

    Args:
        budget: the sets that the logits refer to.
        alpha: weight α of M_r.
        beta: weight β of M_s.
        gamma: weight γ of the NLL; 0 is the paper's loss.
        class_weights: weight of each class (N); a set-valued label uses the mean over its classes.
        set_weights: weight of each set in the BCE (|O|).
        ignore_index: samples with this class index are ignored.
        disambiguate: how to read a set-valued label S. True: the class is one of S; the belief in a set that
            contains only a part of S is estimated from the prediction, BetP(A ∩ S) / BetP(S). False: all mass
            is on S itself, for classes that are never told apart.

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
        gamma: float = 0.0,
        *,
        class_weights: Numbers | None = None,
        set_weights: Numbers | None = None,
        ignore_index: int = -100,
        disambiguate: bool = True,
    ) -> None:
        super().__init__(
            budget,
            class_weights=class_weights,
            set_weights=set_weights,
            ignore_index=ignore_index,
            disambiguate=disambiguate,
        )
        for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma)):
            if not value >= 0:
                raise RandomSetError(f"{name} must be non-negative", got=value)
        self.alpha, self.beta, self.gamma = alpha, beta, gamma

    def _loss(self, logits: Tensor, target: Tensor, weight: Tensor | None, labels: Tensor) -> Tensor:
        mass = self._mass(logits)
        negative = mass.clamp_max(0).sum(1).neg()
        each = [self._entropy(logits, target), negative, mass.sum(1)]
        each += [self._nll(mass, target, labels)] if self.gamma else []
        parts, means = self._batch_means(weight, *each)
        bce, m_r, total = parts[:3]
        # The global mean decides whether the hinge is active; the gradient is that of the local part.
        m_s = (total - 1) * (means[2] > 1)
        hinge = (means[2] - 1).clamp_min(0)
        whole = means[0] + self.alpha * means[1] + self.beta * hinge
        self.terms = {"loss": whole, "bce": means[0], "M_r": means[1], "M_s": hinge}
        loss = bce + self.alpha * m_r + self.beta * m_s
        if not self.gamma:
            return loss
        self.terms |= {"loss": whole + self.gamma * means[3], "nll": means[3]}
        return loss + self.gamma * parts[3]

    def _nll(self, mass: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        """Return −log BetP of each label (B), with the masses repaired as in a prediction.

        For a set-valued label, BetP is that of the set; for masses, the mean over their sets.
        """
        betp, n = self._pignistic(mass), self.budget.num_classes
        if labels.dtype == torch.bool:
            return -(betp * labels).sum(1).clamp_min(_TINY).log()
        if labels.dim() == 2 and labels.shape[1] != n:
            each = over_sets(self.operators.sum_per_set, betp).clamp_min(_TINY).log()
            return -(labels[:, : each.shape[1]].to(each) * each).sum(1)
        return -(target[:, :n] * betp.clamp_min(_TINY).log()).sum(1)

    def extra_repr(self) -> str:  # noqa: D102
        return f"alpha={self.alpha}, beta={self.beta}" + (f", gamma={self.gamma}" if self.gamma else "")


class NormalisedMassLoss(_BeliefLoss):
    """The paper's alternative loss with masses that are valid by construction (App. E), L = BCE + BCE_norm.

    BCE_norm compares the target with Bel'(A) = Σ_{B ⊆ A} m'(B), where m' = softmax(scale · m) over the budget
    and m are the masses of the predicted beliefs. The paper's scale is 1. Masses lie within about [−1, 1],
    so their softmax is flat; a larger scale sharpens it. `masses` returns m' for any logits. The
    options are the keyword-only arguments of `RandomSetLoss`.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> loss = NormalisedMassLoss(budget)
    >>> value = loss(torch.zeros(2, 4), torch.tensor([0, 2]))
    >>> {name: round(term.item(), 3) for name, term in loss.terms.items()}
    {'loss': 1.369, 'bce': 0.693, 'bce_norm': 0.676}
    """

    def __init__(self, budget: Budget, scale: float = 1.0, **options: Any) -> None:
        super().__init__(budget, **options)
        if not scale > 0:
            raise RandomSetError("scale must be positive", got=scale)
        self.scale = scale

    def masses(self, logits: Tensor) -> Tensor:
        """Return m', the valid masses over the budget's sets: (…, |O|) → (…, |O|)."""
        return (self.scale * self._mass(logits)).softmax(-1)

    def _loss(self, logits: Tensor, target: Tensor, weight: Tensor | None, labels: Tensor) -> Tensor:
        tiny = torch.finfo(logits.dtype).eps  # Bel'(Θ) is 1 up to rounding
        belief = belief_from_mass(self.masses(logits), self.operators).clamp(tiny, 1 - tiny)
        normalised = nn.functional.binary_cross_entropy(belief, target, reduction="none")
        norm = self._mean_over_sets(normalised)
        parts, means = self._batch_means(weight, self._entropy(logits, target), norm)
        self.terms = {"loss": means[0] + means[1], "bce": means[0], "bce_norm": means[1]}
        return parts[0] + parts[1]

    def extra_repr(self) -> str:  # noqa: D102
        return f"scale={self.scale}"


def _checked_weights(weights: Numbers, count: int, name: str) -> Tensor:
    values = torch.as_tensor(weights, dtype=torch.float64)
    if values.shape != (count,) or not (values >= 0).all() or not 0 < values.sum() < torch.inf:
        extent = f", from {values.min().item():g} to {values.max().item():g}" if values.numel() else ""
        raise ShapeError(
            f"invalid {name}",
            got=f"shape {tuple(values.shape)}{extent}",
            expected=f"{count} non-negative numbers, not all zero",
        )
    return values.float()


def _sample_weights(weight: Tensor, logits: Tensor) -> Tensor:
    if weight.shape != logits.shape[:1]:
        raise ShapeError(
            "sample weights have the wrong shape", got=str(tuple(weight.shape)), expected=f"({len(logits)},)"
        )
    if not torch.compiler.is_compiling() and not ((weight >= 0) & weight.isfinite()).all():
        raise RandomSetError(
            "sample weights must be non-negative and finite",
            got=f"from {weight.min().item()} to {weight.max().item()}",
        )
    return weight.to(logits)
