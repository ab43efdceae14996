"""Labels of every kind as belief vectors: the targets that a random-set network learns from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from randomset.belief.budget import Budget
from randomset.belief.naming import Members
from randomset.belief.operators import BudgetOperators, operators_of
from randomset.belief.sets_first import over_sets
from randomset.belief.transforms import as_numbers, check_last
from randomset.errors import InvalidBeliefError, LabelError, ShapeError, in_sample

__all__ = [
    "belief_from_classes",
    "belief_from_label_masses",
    "belief_from_label_sets",
    "belief_from_probabilities",
]


def belief_from_classes(
    labels: Tensor | Any, budget: Budget | BudgetOperators, dtype: torch.dtype | None = None
) -> Tensor:
    """Encode class indices: Bel(A) = 1 iff the class is in A, else 0 (Section 3.1): (…) → (…, |O|).

    Whatever the budget, the encoding of c inverts to m({c}) = 1 and zero elsewhere.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> belief_from_classes(torch.tensor([0, 2]), budget)
    tensor([[1., 0., 0., 1.],
            [0., 0., 1., 0.]])
    """
    remedy = "Sets of class names go to belief_from_label_sets"
    labels = as_numbers(labels, "class labels", LabelError, remedy)
    n = operators_of(budget, labels).budget.num_classes
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.is_complex():
        raise LabelError(
            "class labels are not integers",
            got=str(labels.dtype),
            expected="an integer tensor of class indices",
            remedy="Sets of classes go to belief_from_label_sets, distributions to belief_from_probabilities",
        )
    if not torch.compiler.is_compiling():
        outside = (labels.long() < 0) | (labels.long() >= n)
        if outside.any():
            where = tuple(outside.nonzero()[0].tolist())
            raise LabelError(
                "a label is not a class index",
                got=f"{labels[where].item()}{in_sample(where)}",
                expected=f"0 to {n - 1}",
                remedy="Leave samples without a label out, or label them with the set of all classes",
            )
    one_hot = torch.nn.functional.one_hot(labels.long(), n)
    return _belief(one_hot.to(dtype or torch.get_default_dtype()), budget)


def belief_from_label_sets(
    label_sets: Tensor | Iterable[Members],
    budget: Budget | BudgetOperators,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Encode set-valued labels, "cat or dog": Bel(A) = 1 iff the label set ⊆ A: (…, N) → (…, |O|).

    `label_sets` is a boolean mask over the classes, or a list of sets of names or indices. If the label
    set itself is not in the budget, every set around it has belief 1; where several smallest ones
    exist, that is no belief function any more (their masses overlap), though still a sound target.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> belief_from_label_sets([{"cat", "dog"}, {"car"}], budget)
    tensor([[0., 0., 0., 1.],
            [0., 0., 1., 0.]])
    """
    if not isinstance(label_sets, Tensor):
        family = budget if isinstance(budget, Budget) else budget.budget
        device = "cpu" if isinstance(budget, Budget) else budget.sizes.device
        label_sets = family.mask_from_sets(label_sets).to(device)
    operators = operators_of(budget, label_sets)
    n = operators.budget.num_classes
    if label_sets.dtype != torch.bool or label_sets.dim() == 0 or label_sets.shape[-1] != n:
        raise ShapeError(
            "set-valued labels are not a mask over the classes",
            got=f"{label_sets.dtype} {tuple(label_sets.shape)}",
            expected=f"torch.bool (…, {n})",
            remedy="Budget.mask_from_sets turns sets of names or indices into such a mask",
        )
    if not torch.compiler.is_compiling():
        empty = ~label_sets.any(-1)
        if empty.any():
            where = empty.nonzero()[0].tolist() if empty.dim() else "the only label"
            raise LabelError(
                "a set-valued label names no class",
                got=f"an empty set at {where}",
                expected="at least one class; a label that says nothing names all of them",
            )
    dtype = dtype or torch.get_default_dtype()
    inside = _belief(label_sets.to(torch.float32), operators)
    return (inside == label_sets.sum(-1, keepdim=True)).to(dtype)


def belief_from_probabilities(probabilities: Tensor | Any, budget: Budget | BudgetOperators) -> Tensor:
    """Encode soft labels, a distribution over the classes: Bel(A) = Σ_{c ∈ A} p(c): (…, N) → (…, |O|).

    Soft labels that are masses over sets go to `belief_from_label_masses`.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> belief_from_probabilities(torch.tensor([0.5, 0.25, 0.25]), budget)
    tensor([0.5000, 0.2500, 0.2500, 0.7500])
    """
    probabilities = as_numbers(probabilities, "probabilities", LabelError)
    operators = operators_of(budget, probabilities)
    n = operators.budget.num_classes
    check_last(probabilities, n, "probabilities", "the classes")
    if not torch.compiler.is_compiling():
        check_distribution(probabilities)
    return _belief(probabilities, operators)


def belief_from_label_masses(masses: Tensor | Any, budget: Budget | BudgetOperators) -> Tensor:
    """Encode soft labels that are masses over sets, "0.7 cat, 0.3 cat or dog": (…, |O|) → (…, |O|).

    Bel(A) = Σ_{B ⊆ A} m(B). The masses may also have a last column for Θ, "anything", if the budget lacks
    it: such mass supports no smaller set.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> belief_from_label_masses(torch.tensor([0.5, 0.0, 0.0, 0.25, 0.25]), budget)
    tensor([0.5000, 0.0000, 0.0000, 0.7500])
    """
    masses = as_numbers(masses, "masses", LabelError)
    operators = operators_of(budget, masses)
    if masses.dim() and masses.shape[-1] == len(operators.complete.budget):
        operators = operators.complete
    check_last(masses, len(operators.budget), "masses", operators.budget)
    if not torch.compiler.is_compiling():
        check_distribution(masses, "masses")
    belief = over_sets(operators.sum_subsets, masses, operators.footprint)
    return belief[..., : len(operators_of(budget, masses).budget)]


def _belief(weights: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    operators = operators_of(budget, weights)
    return over_sets(operators.sum_per_set, weights, operators.footprint)


def check_distribution(values: Tensor, what: str = "probabilities", tolerance: float = 0.0) -> None:
    """Refuse values that are not finite, are negative, or do not sum to one along the last dimension.

    By default the tolerance is what rounding in the tensor's own type explains.
    """
    tolerance = tolerance or rounding(values.dtype)
    total = values.sum(-1)
    bad = ~(((total - 1).abs() <= tolerance) & (values.amin(-1) >= -tolerance))  # NaN is bad, too
    if not bad.any():
        return
    where = tuple(bad.nonzero()[0].tolist())
    sample, lowest = values[where], values[where].min().item()
    place = in_sample(where)
    if not sample.isfinite().all():
        value = sample[~sample.isfinite()][0].item()
        raise InvalidBeliefError(
            f"the {what} are not finite", got=f"{value}{place}", expected="finite numbers"
        )
    if lowest < -tolerance:
        raise InvalidBeliefError(
            f"the {what} are negative", got=f"{lowest:.6g}{place}", expected="numbers from 0 to 1"
        )
    raise InvalidBeliefError(
        f"the {what} do not sum to one", got=f"{total[where].item():.6g}{place}", expected="a sum of 1"
    )


def rounding(dtype: torch.dtype) -> float:
    """Return how far a sum of many numbers of a type may stray from one."""
    return {torch.float64: 1e-9, torch.float32: 1e-4}.get(dtype, 2e-2)
