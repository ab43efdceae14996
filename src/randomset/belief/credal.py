"""The credal set of a belief function: all probabilities consistent with it (Eq. 4 and 8)."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from randomset._core.checks import Members
from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.belief.sums import Pairs, PowerSetTransform, SparseSum, over_sets, product_over_sets
from randomset.belief.transforms import check_last, checked_operators
from randomset.errors import RandomSetError, ShapeError

__all__ = [
    "can_be_distributed",
    "credal_vertices",
    "expectation_bounds",
    "is_in_credal_set",
    "lower_from_mass",
    "set_bounds",
    "upper_from_mass",
]

MAX_VERTEX_CLASSES = 8
MAX_ENUMERATED_CLASSES = 12


def lower_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Lower probability of every class, min_{P ∈ Cre} P(c) = Bel({c}) = m({c}): (…, |O|) → (…, N).

    >>> mass = torch.tensor([0.5, 0.0, 0.1, 0.4])               # {a}, {b}, {c}, {a, b}
    >>> lower_from_mass(mass, Budget.from_sets([{0, 1}], 3))
    tensor([0.5000, 0.0000, 0.1000])
    """
    operators = checked_operators(mass, budget, "masses")
    return mass[..., : operators.budget.num_classes]


def upper_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Upper probability of every class, max_{P ∈ Cre} P(c) = Pl({c}) = Σ_{A ∋ c} m(A): (…, |O|) → (…, N).

    >>> upper_from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3))
    tensor([0.9000, 0.4000, 0.1000])
    """
    operators = checked_operators(mass, budget, "masses")
    if (members := operators.dense_members(mass)) is not None:
        return product_over_sets(members, mass)
    return over_sets(operators.sum_per_class, mass, operators.footprint)


def set_bounds(
    mass: Tensor, budget: Budget | BudgetOperators, sets: Tensor | Iterable[Members]
) -> tuple[Tensor, Tensor]:
    """Lower and upper probability of any sets of classes: two tensors (…, M) from masses (…, |O|).

    Bel(A) = Σ_{B ⊆ A} m(B) and Pl(A) = Σ_{B ∩ A ≠ ∅} m(B). The M sets need not be in the budget: names,
    indices, or a boolean mask (M, N).

    >>> lower, upper = set_bounds(torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3), [{1, 2}])
    >>> lower, upper
    (tensor([0.1000]), tensor([0.5000]))
    """
    operators = checked_operators(mass, budget, "masses")
    n = operators.budget.num_classes
    mask = sets if isinstance(sets, Tensor) else operators.budget.mask_from_sets(sets)
    if mask.dtype != torch.bool or mask.dim() != 2 or mask.shape[1] != n:
        raise ShapeError(
            "sets must be a boolean mask over the classes",
            got=f"{mask.dtype} {tuple(mask.shape)}",
            expected=f"torch.bool (M, {n})",
        )
    common = operators.sum_per_set(mask.to(mass.device).T.float().contiguous())  # |A ∩ B|: (|O|, M)

    def total(selected: Tensor) -> Tensor:
        row, column = (indices.cpu() for indices in selected.T.nonzero(as_tuple=True))
        sums = SparseSum(Pairs(row, column, torch.ones_like(row)), len(mask)).to(mass.device)
        return over_sets(sums, mass)

    return total(common == operators.sizes[:, None]), total(common > 0)


def expectation_bounds(cost: Tensor, mass: Tensor, budget: Budget | BudgetOperators) -> tuple[Tensor, Tensor]:
    """Lower and upper expected cost over the credal set: the two Choquet integrals.

    E_low = Σ_A m(A) min_{c ∈ A} cost(c) and E_up = Σ_A m(A) max_{c ∈ A} cost(c). A cost vector (N,) gives
    two tensors (…); a matrix (actions, N) gives two tensors (…, actions).

    >>> mass, budget = torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3)
    >>> expectation_bounds(torch.tensor([0.0, 10.0, 100.0]), mass, budget)
    (tensor(10.), tensor(14.))
    """
    operators = checked_operators(mass, budget, "masses")
    cost = checked_cost(cost, operators.budget.num_classes)
    columns = cost.to(mass).reshape(-1, cost.shape[-1]).T  # (N, actions)
    member = operators.members_of_set
    terms = columns.index_select(0, member.column)
    index = member.row[:, None].expand_as(terms)
    empty = terms.new_zeros(len(member.start), terms.shape[1])
    bounds = []
    with torch.autocast(mass.device.type, enabled=False):
        for reduce in ("amin", "amax"):
            extreme = empty.scatter_reduce(0, index, terms, reduce, include_self=False)
            value = mass @ extreme
            bounds.append(value.squeeze(-1) if cost.dim() == 1 else value)
    return bounds[0], bounds[1]


def checked_cost(cost: Tensor, num_classes: int) -> Tensor:
    """Return costs (N,) or (actions, N) as a floating-point tensor; raise if they are not finite."""
    cost = torch.as_tensor(cost, dtype=None if isinstance(cost, Tensor) else torch.float32)
    if not cost.is_floating_point():
        cost = cost.float()
    if cost.dim() not in (1, 2) or cost.shape[-1] != num_classes:
        raise ShapeError(
            "the costs have the wrong shape",
            got=str(tuple(cost.shape)),
            expected=f"({num_classes},) or (actions, {num_classes}): the cost of an action for each class",
        )
    if not torch.compiler.is_compiling() and not cost.isfinite().all():
        raise RandomSetError(
            "the costs are not finite",
            got=cost[~cost.isfinite()][0].item(),
            expected="finite numbers",
            remedy="To forbid an action, give it a large finite cost",
        )
    return cost


def is_in_credal_set(
    probabilities: Tensor, mass: Tensor, budget: Budget | BudgetOperators, tolerance: float = 1e-5
) -> Tensor:
    """Whether P(A) ≥ Bel(A) for **every** set of classes A: (…, N) and (…, |O|) → (…), boolean.

    For up to 12 classes, all sets are compared at once. Beyond that, a maximum flow decides each sample: P is
    in the credal set iff the mass of each set can be distributed among its classes such that they have P.

    >>> mass, budget = torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3)
    >>> is_in_credal_set(torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.2, 0.2]]), mass.expand(2, 4), budget)
    tensor([ True, False])
    """
    operators = checked_operators(mass, budget, "masses")
    budget = operators.budget
    n = budget.num_classes
    check_last(probabilities, n, "probabilities", "the classes")
    probabilities, mass = probabilities.double(), mass.double()
    shape = joint_shape(probabilities.shape[:-1], mass.shape[:-1])
    mass = mass.expand(*shape, len(budget))
    probabilities = probabilities.expand(*shape, n)
    normalised = ((probabilities.sum(-1) - 1).abs() <= tolerance) & (probabilities >= -tolerance).all(-1)
    # Bel(A) − P(A) is the sum over the subsets of A of these differences.
    difference = torch.cat((mass[..., :n] - probabilities, mass[..., n:]), -1)
    if n <= MAX_ENUMERATED_CLASSES:
        transform = enumeration(operators)

        def largest(difference: Tensor) -> Tensor:
            return transform.add_subsets(transform.all_sets(difference)).amax(0, keepdim=True)

        return normalised & (over_sets(largest, difference, 2 * 2**n).squeeze(-1) <= tolerance)
    # The intervals rule out most samples; each of the others needs a flow of a few milliseconds.
    upper = upper_from_mass(mass, operators)
    outside = (difference[..., :n] > tolerance).any(-1) | (probabilities > upper + tolerance).any(-1)
    inside = normalised & ~outside
    for index in map(tuple, inside.nonzero().tolist()):
        inside[index] = can_be_distributed(difference[index].tolist(), budget.sets, n, tolerance)
    return inside


def joint_shape(*shapes: torch.Size) -> torch.Size:
    """Return the broadcast shape of batches, or raise if they do not match."""
    if all(shape == shapes[0] for shape in shapes):  # broadcast_shapes is slow
        return shapes[0]
    try:
        return torch.broadcast_shapes(*shapes)
    except RuntimeError:
        raise ShapeError(
            "the batch shapes do not match",
            got=" and ".join(str(tuple(shape)) for shape in shapes),
            expected="shapes that can be broadcast",
        ) from None


def credal_vertices(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Vertices of the credal set, one per permutation of the classes: (…, |O|) → (…, N!, N).

    The vertex of a permutation gives each class the mass of all sets that contain it and none of the
    preceding classes (appendix A.3). Equal vertices are repeated. Up to 8 classes.

    >>> mass, budget = torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3)
    >>> credal_vertices(mass, budget).unique(dim=0)
    tensor([[0.5000, 0.4000, 0.1000],
            [0.9000, 0.0000, 0.1000]])
    """
    operators = checked_operators(mass, budget, "masses")
    n = operators.budget.num_classes
    if n > MAX_VERTEX_CLASSES:
        raise RandomSetError(
            "the credal set has too many vertices to list",
            got=f"{n} classes, which have {n}! permutations",
            expected=f"at most {MAX_VERTEX_CLASSES} classes",
            remedy="For bounds without vertices, use lower_from_mass, upper_from_mass or set_bounds",
        )
    transform = enumeration(operators)
    order = torch.tensor(list(itertools.permutations(range(n))), device=mass.device)  # (N!, N)
    prefix = (2**order).cumsum(1)  # codes of the sets of the first 1, 2, …, N classes
    # A class gets the increase of the plausibility over the preceding classes: Pl(A) = 1 − Bel(Θ∖A).
    belief = over_sets(lambda m: transform.add_subsets(transform.all_sets(m)), mass, 2 * 2**n)
    plausibility = mass.sum(-1, keepdim=True) - belief.flip(-1)
    cumulative = plausibility[..., prefix.flatten()].unflatten(-1, prefix.shape)
    increase = torch.diff(cumulative, dim=-1, prepend=torch.zeros_like(cumulative[..., :1]))
    return torch.zeros_like(increase).scatter(-1, order.expand(increase.shape), increase)


def enumeration(operators: BudgetOperators) -> PowerSetTransform:
    """Return the transform over all 2^N sets, also if the operators of the budget are sparse.

    For up to `MAX_ENUMERATED_CLASSES` classes.
    """
    if operators.transform is not None:
        return operators.transform
    return PowerSetTransform(operators.budget).to(operators.sizes.device)


# -- maximum flow ----------------------------------------------------------------------------------


_EPSILON = 1e-13  # smaller amounts are rounding errors


def can_be_distributed(
    difference: Sequence[float], sets: Sequence[tuple[int, ...]], num_classes: int, tolerance: float
) -> bool:
    """Return whether the masses of the sets can be distributed among their classes to fill every class.

    The first `num_classes` entries of `difference` are m({c}) − P(c), minus the capacity of class c; the
    others are the masses of the sets. Augmenting paths are found breadth-first, so the number of steps does
    not depend on the capacities.

    >>> can_be_distributed([-0.2, -0.2, 0.0, 0.4], [(0,), (1,), (2,), (0, 1)], 3, 1e-9)
    True
    >>> can_be_distributed([-0.2, 0.0, -0.2, 0.4], [(0,), (1,), (2,), (0, 1)], 3, 1e-9)
    False
    """
    capacity = [-value for value in difference[:num_classes]]
    if min(capacity) < -tolerance:
        return False
    supply = {
        k: difference[k]
        for k in range(num_classes, len(sets))
        if difference[k] > _EPSILON and len(sets[k]) < num_classes  # Θ can fill any class
    }
    # The residual graph: class c is node c, and set k is node k; a class returns what it got from a set.
    room: dict[int, dict[int, float]] = {k: dict.fromkeys(sets[k], math.inf) for k in supply}
    room |= {c: {} for c in range(num_classes)}
    remaining = sum(supply.values())
    for k in supply:
        while supply[k] > _EPSILON and remaining > tolerance:
            path = _augmenting_path(k, room, capacity)
            if path is None:
                break
            steps = list(itertools.pairwise(path))
            amount = min(supply[k], capacity[path[-1]], *(room[start][end] for start, end in steps))
            for start, end in steps:
                room[start][end] -= amount
                room[end][start] = room[end].get(start, 0.0) + amount
            capacity[path[-1]] -= amount
            supply[k] -= amount
            remaining -= amount
    return remaining <= tolerance


def _augmenting_path(
    start: int, room: dict[int, dict[int, float]], capacity: list[float]
) -> list[int] | None:
    """Return the nodes of a shortest path from a set to a class with free capacity."""
    before, queue = {start: start}, deque([start])
    while queue:
        node = queue.popleft()
        for following, amount in room[node].items():
            if following in before or amount <= _EPSILON:
                continue
            before[following] = node
            if following < len(capacity) and capacity[following] > _EPSILON:
                path = [following]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return path[::-1]
            queue.append(following)
    return None
