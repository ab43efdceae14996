"""Transforms between mass, belief, plausibility and commonality, and belief vectors from labels of any kind.

Every transform is linear and differentiable. It takes tensors (…, |O|) over the sets of a budget, of any
floating dtype and on any device, and returns the same dtype. Encoded labels are the training targets of a
random-set network.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from randomset._core.checks import Members
from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators, operators_of
from randomset.belief.sums import over_sets, product_over_sets
from randomset.errors import InvalidBeliefError, LabelError, RandomSetError, ShapeError, in_sample

__all__ = [
    "belief_from_classes",
    "belief_from_label_masses",
    "belief_from_label_sets",
    "belief_from_mass",
    "belief_from_probabilities",
    "commonality_from_mass",
    "least_committed_mass",
    "mass_from_belief",
    "plausibility_from_mass",
]

_MAX_RANKS = 4096  # ranks of fewer classes have sums that single precision represents exactly


def belief_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Belief: Bel(A) = Σ_{B ⊆ A} m(B) (Eq. 2, left): (…, |O|) → (…, |O|).

    >>> budget = Budget.powerset(["c1", "c2", "c3"])
    >>> mass = torch.tensor([0.5, 0.0, 0.1, 0.4, 0.0, 0.0, 0.0])   # the example of Section 2
    >>> belief_from_mass(mass, budget)
    tensor([0.5000, 0.0000, 0.1000, 0.9000, 0.6000, 0.1000, 1.0000])
    """
    operators = checked_operators(mass, budget, "masses")
    return over_sets(operators.sum_subsets, mass, operators.footprint)


def mass_from_belief(belief: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Mass: the inverse of `belief_from_mass` on the budget: (…, |O|) → (…, |O|).

    m(A) = Σ_{B ⊆ A, B ∈ O} μ(A, B) Bel(B), with μ the Moebius function of the budget ordered by inclusion.
    On a downward closed budget μ(A, B) = (−1)^{|A∖B|} and this is Eq. 2, right; on others the plain
    alternating sum would be wrong. An invalid belief vector, such as a network's raw output, gives negative
    masses or a sum above one: see `repair_belief`.

    >>> budget = Budget.from_sets([{"a", "b", "c"}], "abc")          # not downward closed
    >>> mass_from_belief(torch.tensor([0.0, 0.0, 1.0, 1.0]), budget)  # the label c
    tensor([0., 0., 1., 0.])
    """
    operators = checked_operators(belief, budget, "beliefs")
    return over_sets(operators.invert_subsets, belief, operators.footprint)


def plausibility_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Plausibility: Pl(A) = Σ_{B ∩ A ≠ ∅} m(B) = 1 − Bel(Θ ∖ A): (…, |O|) → (…, |O|).

    >>> budget = Budget.powerset(["c1", "c2", "c3"])
    >>> plausibility_from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4, 0.0, 0.0, 0.0]), budget)
    tensor([0.9000, 0.4000, 0.1000, 0.9000, 1.0000, 0.5000, 1.0000])
    """
    operators = checked_operators(mass, budget, "masses")
    return over_sets(operators.sum_intersecting, mass, operators.footprint)


def commonality_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Commonality: Q(A) = Σ_{B ⊇ A} m(B): (…, |O|) → (…, |O|).

    >>> budget = Budget.powerset(["c1", "c2", "c3"])
    >>> commonality_from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4, 0.0, 0.0, 0.0]), budget)
    tensor([0.9000, 0.4000, 0.1000, 0.4000, 0.0000, 0.0000, 0.0000])
    """
    operators = checked_operators(mass, budget, "masses")
    return over_sets(operators.sum_supersets, mass, operators.footprint)


def least_committed_mass(probabilities: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Return the least committed belief function with a given BetP: (…, N) → masses over the budget with Θ.

    Its focal sets are the nested sets Aᵢ of the i likeliest classes (Dubois, Prade and Smets, 2008). With
    p₁ ≥ p₂ ≥ … and p_{N+1} = 0:

    m(Aᵢ) = i (pᵢ − pᵢ₊₁)

    If the budget lacks a set Aᵢ, its classes keep their parts as masses of single classes.

    >>> least_committed_mass(torch.tensor([0.6, 0.3, 0.1]), Budget.from_sets([{0, 1}], 3))
    tensor([0.3000, 0.0000, 0.0000, 0.4000, 0.3000])
    >>> least_committed_mass(torch.tensor([0.6, 0.1, 0.3]), Budget.from_sets([{0, 1}], 3))
    tensor([0.5000, 0.0000, 0.2000, 0.0000, 0.3000])
    """
    operators = operators_of(budget, probabilities).complete
    count = operators.budget.num_classes
    check_last(probabilities, count, "probabilities", "one per class")
    mass = operators.gaps(probabilities)
    if mass is not None and (shares := operators.dense_shares(mass)) is not None:
        rest = (probabilities - product_over_sets(shares, mass)).clamp_min_(0)
        mass[..., :count].add_(rest)
        return mass
    ranked, order = probabilities.sort(-1, descending=True)
    steps = ranked - torch.nn.functional.pad(ranked[..., 1:], (0, 1))
    # A set has the likeliest classes if their ranks 0, 1, … sum to the smallest possible number.
    ranks = order.argsort(-1).to(torch.float64 if count > _MAX_RANKS else torch.float32)
    nested = over_sets(operators.sum_per_set, ranks, operators.footprint) == operators.rank_sums
    mass = nested * steps[..., operators.last_rank] * operators.sizes
    shared = over_sets(partial(operators.sum_per_class, shared=True), mass, operators.footprint)
    rest = (probabilities - shared).clamp_min(0)
    return mass + torch.nn.functional.pad(rest, (0, mass.shape[-1] - count))


def checked_operators(x: Tensor, budget: Budget | BudgetOperators, what: str) -> BudgetOperators:
    """Return the operators for a tensor over the budget's sets; raise if its shape or dtype is wrong."""
    if not isinstance(x, Tensor):
        raise ShapeError(
            f"the {what} must be a tensor",
            got=type(x).__name__,
            expected="a torch.Tensor, then the budget",
            remedy="Convert arrays and lists with torch.as_tensor",
        )
    operators = operators_of(budget, x)
    family = operators.budget
    if x.dim() and x.shape[-1] == len(family) and x.is_floating_point():
        return operators
    remedy = ""
    if x.dim() and x.shape[-1] == len(family) + 1 and not family.has_universal_set:
        remedy = "The budget of a RandomSet includes Θ: use random_set.budget"
    check_last(x, len(family), what, family, remedy)
    return operators


def full_precision(x: Tensor) -> Tensor:
    """Convert half precision to float32: masses are differences of beliefs, and would lose their digits."""
    return x.float() if x.is_floating_point() and x.dtype.itemsize < 4 else x


def check_beliefs(belief: Tensor) -> None:
    """Raise if beliefs are far outside [0, 1], as logits are."""
    if not belief.numel() or torch.compiler.is_compiling():
        return
    low, high = (end.item() for end in belief.detach().aminmax())
    if low < -1e-3 or high > 1 + 1e-3:
        raise InvalidBeliefError(
            "the beliefs are out of range",
            got=f"{low if low < 0 else high:.6g}",
            expected="numbers from 0 to 1",
            remedy="For a network's logits, use RandomSet.from_logits",
        )


def as_numbers(
    values: object, what: str, kind: type[RandomSetError] = ShapeError, remedy: str = ""
) -> Tensor:
    """Convert tensors, arrays and lists to a tensor."""
    if isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise kind(
            f"the {what} must be numbers",
            got=f"{type(values).__name__} {str(values)[:60]}",
            expected="a tensor, an array or a list of numbers, then the budget",
            remedy=remedy,
        ) from None


def check_last(x: Tensor, size: int, what: str, meaning: object, remedy: str = "") -> None:
    """Raise if a tensor is not floating-point or its last dimension is not `size`."""
    if x.dim() == 0 or x.shape[-1] != size:
        raise ShapeError(
            f"the {what} have the wrong shape",
            got=str(tuple(x.shape)),
            expected=f"(…, {size}) for {meaning}",
            remedy=remedy,
        )
    if not x.is_floating_point():
        raise ShapeError(
            f"the {what} must be floating-point",
            got=str(x.dtype),
            expected="float32 or float64",
            remedy="Convert them with .float()",
        )


# -- labels ----------------------------------------------------------------------------------------


def belief_from_classes(
    labels: Tensor | Any, budget: Budget | BudgetOperators, dtype: torch.dtype | None = None
) -> Tensor:
    """Encode class indices: Bel(A) = 1 iff the class is in A, else 0 (Section 3.1): (…) → (…, |O|).

    For any budget, the encoding of c inverts to m({c}) = 1 and zero elsewhere.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> belief_from_classes(torch.tensor([0, 2]), budget)
    tensor([[1., 0., 0., 1.],
            [0., 0., 1., 0.]])
    """
    remedy = "For sets of class names, use belief_from_label_sets"
    labels = as_numbers(labels, "class labels", LabelError, remedy)
    n = operators_of(budget, labels).budget.num_classes
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.is_complex():
        raise LabelError(
            "class labels must be integers",
            got=str(labels.dtype),
            expected="an integer tensor of class indices",
            remedy="Use belief_from_label_sets for sets, belief_from_probabilities for distributions",
        )
    if not torch.compiler.is_compiling():
        outside = (labels.long() < 0) | (labels.long() >= n)
        if outside.any():
            index = tuple(outside.nonzero()[0].tolist())
            raise LabelError(
                "a label is not a class index",
                got=f"{labels[index].item()}{in_sample(index)}",
                expected=f"0 to {n - 1}",
                remedy="Drop unlabelled samples, or label them with the set of all classes",
            )
    one_hot = torch.nn.functional.one_hot(labels.long(), n)
    return _belief(one_hot.to(dtype or torch.get_default_dtype()), budget)


def belief_from_label_sets(
    label_sets: Tensor | Iterable[Members], budget: Budget | BudgetOperators, dtype: torch.dtype | None = None
) -> Tensor:
    """Encode set-valued labels, "cat or dog": Bel(A) = 1 iff the label set ⊆ A: (…, N) → (…, |O|).

    `label_sets` is a boolean mask over the classes, or a list of sets of names or indices. If a label set is
    not in the budget, each of its supersets still has belief 1. If several of them are minimal, the result
    is not a belief function. In training, `RandomSetLoss` replaces the zeros of sets that contain only a part
    of a label by estimates, unless `disambiguate=False`.

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
            "set-valued labels must be a boolean mask over the classes",
            got=f"{label_sets.dtype} {tuple(label_sets.shape)}",
            expected=f"torch.bool (…, {n})",
            remedy="Budget.mask_from_sets converts sets of names or indices to a mask",
        )
    if not torch.compiler.is_compiling():
        empty = ~label_sets.any(-1)
        if empty.any():
            index = empty.nonzero()[0].tolist() if empty.dim() else "the only label"
            raise LabelError(
                "a set-valued label is empty",
                got=f"an empty set at {index}",
                expected="at least one class; all classes if nothing is known",
            )
    dtype = dtype or torch.get_default_dtype()
    inside = _belief(label_sets.to(torch.float32), operators)
    return (inside == label_sets.sum(-1, keepdim=True)).to(dtype)


def belief_from_probabilities(probabilities: Tensor | Any, budget: Budget | BudgetOperators) -> Tensor:
    """Encode soft labels, distributions over the classes: Bel(A) = Σ_{c ∈ A} p(c): (…, N) → (…, |O|).

    For masses over sets, see `belief_from_label_masses`.

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
    """Encode masses over sets, "0.7 cat, 0.3 cat or dog": Bel(A) = Σ_{B ⊆ A} m(B): (…, |O|) → (…, |O|).

    If the budget lacks Θ, the masses may have one more column for it; that mass supports no smaller set.

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
    """Raise if values are not finite, negative, or do not sum to one along the last dimension.

    The default tolerance depends on the precision of the dtype.
    """
    tolerance = tolerance or rounding(values.dtype)
    total = values.sum(-1)
    invalid = ~(((total - 1).abs() <= tolerance) & (values.amin(-1) >= -tolerance))  # true for NaN
    if not invalid.any():
        return
    index = tuple(invalid.nonzero()[0].tolist())
    sample, lowest = values[index], values[index].min().item()
    suffix = in_sample(index)
    if not sample.isfinite().all():
        value = sample[~sample.isfinite()][0].item()
        raise InvalidBeliefError(
            f"the {what} are not finite", got=f"{value}{suffix}", expected="finite numbers"
        )
    if lowest < -tolerance:
        raise InvalidBeliefError(
            f"the {what} are negative", got=f"{lowest:.6g}{suffix}", expected="numbers from 0 to 1"
        )
    raise InvalidBeliefError(
        f"the {what} do not sum to one", got=f"{total[index].item():.6g}{suffix}", expected="a sum of 1"
    )


def rounding(dtype: torch.dtype) -> float:
    """Return the tolerance for sums of many numbers of a dtype."""
    return {torch.float64: 1e-9, torch.float32: 1e-4}.get(dtype, 2e-2)
