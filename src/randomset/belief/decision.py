"""Decision rules that return a class, a set of classes, an action with a cost, or a rejection.

Set-valued results are boolean masks (…, N), or (…, actions) with a cost matrix. Without a cost matrix, the
actions are the classes, with zero-one cost.
"""

from __future__ import annotations

import numbers
from typing import Literal

import torch
from torch import Tensor

from randomset.belief.budget import Budget
from randomset.belief.credal import (
    MAX_ENUMERATED_CLASSES,
    checked_cost,
    enumeration,
    expectation_bounds,
    lower_from_mass,
    upper_from_mass,
)
from randomset.belief.measures import pignistic_from_mass
from randomset.belief.operators import BudgetOperators
from randomset.belief.sums import over_sets
from randomset.belief.transforms import checked_operators
from randomset.errors import LabelError, RandomSetError, ShapeError

__all__ = [
    "e_admissibility",
    "hurwicz",
    "interval_dominance",
    "maximality",
    "minimum_expected_cost",
    "pignistic_decision",
    "reject",
    "utility",
]

_ROUNDING = 1e-6  # smaller differences do not count as dominance


def pignistic_decision(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """The class with the largest pignistic probability: (…, |O|) → (…), integers.

    >>> pignistic_decision(torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3))
    tensor(0)
    """
    return pignistic_from_mass(mass, budget).argmax(-1)


def reject(
    mass: Tensor,
    budget: Budget | BudgetOperators,
    level: float,
    by: Literal["pignistic", "lower"] = "pignistic",
) -> Tensor:
    """The pignistic decision where its probability reaches `level`, else −1: (…, |O|) → (…), integers.

    With `by="lower"` its lower probability must reach the level: more cautious, because it also abstains
    where the mass is on sets that contain other classes, such as Θ.

    >>> mass = torch.tensor([[0.5, 0.0, 0.1, 0.4], [0.4, 0.3, 0.3, 0.0]])
    >>> reject(mass, Budget.from_sets([{0, 1}], 3), level=0.6)
    tensor([ 0, -1])
    """
    _check_share("level", level)
    if by not in ("pignistic", "lower"):
        raise RandomSetError("unknown criterion", got=by, expected="'pignistic' or 'lower'")
    confidence, label = pignistic_from_mass(mass, budget).max(-1)
    if by == "lower":
        confidence = lower_from_mass(mass, budget).gather(-1, label.unsqueeze(-1)).squeeze(-1)
    return torch.where(confidence >= level, label, -1)


def interval_dominance(mass: Tensor, budget: Budget | BudgetOperators, cost: Tensor | None = None) -> Tensor:
    """The actions that are not interval-dominated: (…, |O|) → (…, actions), boolean.

    An action is dominated if the upper expected cost of another is below its lower one; a class, if the lower
    probability of another exceeds its upper one. If all lower probabilities are 0, no class is dominated,
    not even one with upper probability 0; `e_admissibility` is stricter.

    >>> mass = torch.tensor([[0.5, 0.0, 0.1, 0.4], [0.1, 0.0, 0.1, 0.8]])
    >>> interval_dominance(mass, Budget.from_sets([{0, 1}], 3))
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    lower, upper = _cost_bounds(cost, mass, budget)
    return lower <= upper.amin(-1, keepdim=True) + _ROUNDING


def maximality(mass: Tensor, budget: Budget | BudgetOperators, cost: Tensor | None = None) -> Tensor:
    """The actions that no other beats under every probability in the credal set: (…, actions), boolean.

    Action a is dropped if the lower expectation of cost(a) − cost(b) is positive for some b. With zero-one
    cost this equals `interval_dominance`; with a cost matrix it keeps fewer actions.

    >>> mass, budget = torch.tensor([0.2, 0.1, 0.0, 0.7]), Budget.from_sets([{0, 1}], 3)
    >>> cost = torch.tensor([[0.0, 1.0, 1.0], [0.1, 1.1, 1.1], [1.0, 0.0, 1.0]])
    >>> maximality(mass, budget, cost), interval_dominance(mass, budget, cost)
    (tensor([ True, False,  True]), tensor([True, True, True]))
    """
    if cost is None:
        return interval_dominance(mass, budget)
    cost = _cost_matrix(cost, mass, budget)
    beaten = torch.zeros(*mass.shape[:-1], len(cost), dtype=torch.bool, device=mass.device)
    for alternative in cost:
        beaten |= expectation_bounds(cost - alternative, mass, budget)[0] > _ROUNDING
    return ~beaten


def e_admissibility(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """The classes that are most probable under some probability in the credal set: (…, N), boolean.

    Class c is E-admissible iff it is most probable when it takes all mass it can, Pl({c}), and the rest is
    distributed below that level: Bel(A) ≤ |A| · Pl({c}) for all A without c. Up to 12 classes.

    >>> e_admissibility(torch.tensor([0.2, 0.3, 0.1, 0.4]), Budget.from_sets([{1, 2}], 3))
    tensor([False,  True,  True])
    """
    operators = checked_operators(mass, budget, "masses")
    n = operators.budget.num_classes
    if n > MAX_ENUMERATED_CLASSES:
        raise RandomSetError(
            "too many classes for E-admissibility",
            got=f"{n} classes",
            expected=f"at most {MAX_ENUMERATED_CLASSES}",
            remedy="Use maximality, which keeps every E-admissible class and scales to any number",
        )
    transform = enumeration(operators)
    code = torch.arange(2**n, device=mass.device)
    contains = (code >> torch.arange(n, device=mass.device)[:, None]) & 1 == 1  # (N, 2^N)
    size = contains.sum(0).clamp_min(1)

    def required_level(mass: Tensor) -> Tensor:
        level = transform.add_subsets(transform.all_sets(mass)) / size[:, None]
        return torch.stack([level[~with_class].amax(0) for with_class in contains])

    return upper_from_mass(mass, budget) >= over_sets(required_level, mass, 2 * 2**n) - _ROUNDING


def hurwicz(
    mass: Tensor, budget: Budget | BudgetOperators, optimism: float = 0.5, cost: Tensor | None = None
) -> Tensor:
    """The Hurwicz rule, which weights the two ends of each interval by `optimism`: (…), integers.

    Classes: argmax of optimism · upper + (1 − optimism) · lower; with costs: argmin of
    optimism · lower + (1 − optimism) · upper. 0 is pessimistic, 1 optimistic.

    >>> mass, budget = torch.tensor([0.45, 0.0, 0.15, 0.4]), Budget.from_sets([{1, 2}], 3)
    >>> hurwicz(mass, budget, optimism=0.0), hurwicz(mass, budget, optimism=1.0)
    (tensor(0), tensor(2))
    """
    _check_share("optimism", optimism)
    lower, upper = _cost_bounds(cost, mass, budget)
    return (optimism * lower + (1 - optimism) * upper).argmin(-1)


def minimum_expected_cost(mass: Tensor, budget: Budget | BudgetOperators, cost: Tensor) -> Tensor:
    """The action with the smallest expected cost under the pignistic probability: (…), integers.

    `cost` (actions, N) is the cost of each action for each true class.

    >>> mass, budget = torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3)
    >>> minimum_expected_cost(mass, budget, torch.tensor([[0.0, 1.0, 50.0], [1.0, 1.0, 0.0]]))
    tensor(1)
    """
    cost = _cost_matrix(cost, mass, budget).to(mass)
    with torch.autocast(mass.device.type, enabled=False):
        return (pignistic_from_mass(mass, budget) @ cost.T).argmin(-1)


def utility(decisions: Tensor, labels: Tensor, kind: Literal["discounted", "u65", "u80"] = "u65") -> Tensor:
    """Utility of set-valued decisions: masks (…, N) and labels (…) → (…), 0 where the set misses the label.

    With x = 1/|set|: the discounted accuracy is x; u65 = 1.6 x − 0.6 x² gives 0.65 to a pair that contains
    the label, and u80 = 2.2 x − 1.2 x² gives 0.8, to reward caution more.

    >>> decisions = torch.tensor([[True, True, False], [True, False, False], [False, True, True]])
    >>> utility(decisions, torch.tensor([0, 0, 0]), "u80")
    tensor([0.8000, 1.0000, 0.0000])
    """
    if decisions.dtype != torch.bool or decisions.shape[:-1] != labels.shape:
        raise ShapeError(
            "the decisions do not match the labels",
            got=f"{decisions.dtype} {tuple(decisions.shape)} and {tuple(labels.shape)}",
            expected="torch.bool (…, N) and (…)",
        )
    n = decisions.shape[-1]
    if ((labels < 0) | (labels >= n)).any():
        raise LabelError("a label is not a class index", got=labels.tolist(), expected=f"0 to {n - 1}")
    if kind not in ("discounted", "u65", "u80"):
        raise RandomSetError("unknown utility", got=kind, expected="'discounted', 'u65' or 'u80'")
    linear, square = {"discounted": (1.0, 0.0), "u65": (1.6, 0.6), "u80": (2.2, 1.2)}[kind]
    x = 1 / decisions.sum(-1).clamp_min(1)
    correct = decisions.gather(-1, labels.long().unsqueeze(-1)).squeeze(-1)
    return torch.where(correct, linear * x - square * x * x, 0.0)


def _cost_bounds(
    cost: Tensor | None, mass: Tensor, budget: Budget | BudgetOperators
) -> tuple[Tensor, Tensor]:
    """Lower and upper expected cost of each action; for zero-one cost (None), less one."""
    if cost is None:
        return -upper_from_mass(mass, budget), -lower_from_mass(mass, budget)
    return expectation_bounds(_cost_matrix(cost, mass, budget), mass, budget)


def _cost_matrix(cost: Tensor, mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    num_classes = checked_operators(mass, budget, "masses").budget.num_classes
    cost = checked_cost(cost, num_classes)
    if cost.dim() != 2:
        raise ShapeError(
            "the costs must be a matrix", got=str(tuple(cost.shape)), expected=f"(actions, {num_classes})"
        )
    return cost


def _check_share(name: str, value: float) -> None:
    if not isinstance(value, numbers.Real) or not 0 <= value <= 1:
        raise RandomSetError(f"{name} is out of range", got=value, expected="a number from 0 to 1")
