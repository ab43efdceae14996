"""Summary measures of a belief function: pignistic probability, entropy, non-specificity, discord."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from randomset.belief.budget import Budget
from randomset.belief.credal import MAX_ENUMERATED_CLASSES, MAX_VERTEX_CLASSES, credal_vertices, enumeration
from randomset.belief.operators import BudgetOperators
from randomset.belief.sums import ZERO, over_sets, product_over_sets
from randomset.belief.transforms import check_last, checked_operators
from randomset.errors import RandomSetError, ShapeError

__all__ = [
    "discord",
    "entropy",
    "lower_entropy",
    "most_entropic",
    "mutual_information",
    "nonspecificity",
    "pignistic_from_mass",
    "upper_entropy",
]

_FEW = 2**15  # numbers that need no blocks


def pignistic_from_mass(mass: Tensor, budget: Budget | BudgetOperators) -> Tensor:
    """Pignistic probability: BetP(c) = Σ_{A ∋ c} m(A) / |A| (Eq. 3): (…, |O|) → (…, N).

    >>> pignistic_from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3))
    tensor([0.7000, 0.2000, 0.1000])
    """
    operators = checked_operators(mass, budget, "masses")
    if (shares := operators.dense_shares(mass)) is not None:
        return product_over_sets(shares, mass)
    return over_sets(lambda m: operators.sum_per_class(m, shared=True), mass, operators.footprint)


def entropy(probabilities: Tensor, base: float = 2.0) -> Tensor:
    """Shannon entropy H = −Σ_c p(c) log p(c) (the paper's H_RS for p = BetP): (…, N) → (…).

    In bits by default; `base` selects another unit.

    >>> entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
    tensor([1., 0.])
    """
    _check_base(base)
    if not probabilities.dim():
        raise ShapeError("expected class probabilities", got="a single number", expected="(…, N)")
    check_last(probabilities, probabilities.shape[-1], "probabilities", "N classes")
    few = not torch.compiler.is_compiling() and probabilities.numel() <= _FEW
    if few and probabilities.is_contiguous():
        return _entropy(probabilities, base, -1).squeeze(-1)
    return over_sets(lambda p: _entropy(p, base, 0), probabilities, 3 * probabilities.shape[-1]).squeeze(-1)


def mutual_information(probabilities: Tensor) -> Tensor:
    """Disagreement of S distributions, I = H(mean p) − mean H(p) in bits: (S, …, N) → (…).

    >>> certain, torn = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> mutual_information(torch.stack((certain, torn), 1))
    tensor([0., 1.])
    """
    return (entropy(probabilities.mean(0)) - entropy(probabilities).mean(0)).clamp_min(0)


def nonspecificity(mass: Tensor, budget: Budget | BudgetOperators, base: float = 2.0) -> Tensor:
    """Generalised Hartley measure Σ_A m(A) log |A|: 0 for a probability, log N for ignorance: (…, |O|) → (…).

    >>> nonspecificity(torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3))
    tensor(0.4000)
    """
    _check_base(base)
    operators = checked_operators(mass, budget, "masses")
    n = operators.budget.num_classes
    size = operators.sizes[n:].to(mass.dtype).log() / math.log(base)
    return (mass[..., n:] * size).sum(-1)


def discord(mass: Tensor, budget: Budget | BudgetOperators, base: float = 2.0) -> Tensor:
    """Discord of Klir and Ramer, the conflict among the focal sets: (…, |O|) → (…).

    D = −Σ_A m(A) log Σ_B m(B) |A ∩ B| / |B|, where the inner sum is BetP(A). Equals the Shannon entropy if
    all focal sets are singletons, and 0 if one set has all the mass.

    >>> discord(torch.tensor([0.5, 0.5, 0.0, 0.0]), Budget.from_sets([{0, 1}], 3))
    tensor(1.)
    """
    _check_base(base)
    operators = checked_operators(mass, budget, "masses")

    def columns(mass: Tensor) -> Tensor:
        of_set = operators.sum_per_set(operators.sum_per_class(mass, shared=True))
        return 0 - _log(of_set).mul_(mass).sum(0, keepdim=True) / math.log(base)

    return over_sets(columns, mass, operators.footprint).squeeze(-1)


def upper_entropy(mass: Tensor, budget: Budget | BudgetOperators, base: float = 2.0) -> Tensor:
    """The largest Shannon entropy in the credal set, a measure of total uncertainty: (…, |O|) → (…).

    >>> upper_entropy(torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3))   # at (.5, .4, .1)
    tensor(1.3610)
    """
    return entropy(most_entropic(mass, budget), base)


def lower_entropy(mass: Tensor, budget: Budget | BudgetOperators, base: float = 2.0) -> Tensor:
    """The smallest Shannon entropy in the credal set, found at a vertex; up to 8 classes: (…, |O|) → (…).

    >>> lower_entropy(torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3))   # at (.9, 0, .1)
    tensor(0.4690)
    """
    _check_base(base)
    operators = checked_operators(mass, budget, "masses")
    n = operators.budget.num_classes
    if n > MAX_VERTEX_CLASSES:
        raise RandomSetError(
            "too many classes for lower_entropy, which enumerates the vertices",
            got=f"{n} classes",
            expected=f"at most {MAX_VERTEX_CLASSES}",
            remedy="Use upper_entropy or the entropy of BetP",
        )

    def columns(mass: Tensor) -> Tensor:
        vertices = credal_vertices(mass.T, operators)  # (R, N!, N)
        return entropy(vertices, base).amin(-1)[None]

    return over_sets(columns, mass, 6 * n * math.factorial(n)).squeeze(-1)


def most_entropic(
    mass: Tensor, budget: Budget | BudgetOperators, *, tolerance: float = 1e-3, max_steps: int = 2000
) -> Tensor:
    """The distribution with the largest entropy in the credal set: (…, |O|) → (…, N).

    Up to 12 classes it is exact (Meyerowitz, Richman and Walker 1994): the set with the largest Bel(A)/|A|
    distributes its belief equally, the rest is conditioned on that, and so on. Beyond 12 classes, mirror
    descent on the shares of each set's mass solves the concave problem, until the entropy is within
    `tolerance` nats of the largest. Not differentiable.

    >>> most_entropic(torch.tensor([0.5, 0.0, 0.1, 0.4]), Budget.from_sets([{0, 1}], 3))
    tensor([0.5000, 0.4000, 0.1000])
    """
    operators = checked_operators(mass, budget, "masses")
    n = operators.budget.num_classes
    with torch.no_grad():
        if n <= MAX_ENUMERATED_CLASSES:
            return over_sets(lambda m: _level_by_level(m, operators), mass, 4 * 2**n)
        pairs = len(operators.members_of_set.column)
        return over_sets(lambda m: _mirror_descent(m, operators, tolerance, max_steps), mass, 3 * pairs)


def _level_by_level(mass: Tensor, operators: BudgetOperators) -> Tensor:
    n = operators.budget.num_classes
    transform = enumeration(operators)
    belief = transform.add_subsets(transform.all_sets(mass))  # (2^N, R)
    code = torch.arange(2**n, device=mass.device)[:, None]
    bit = 1 << torch.arange(n, device=mass.device)[:, None]
    size = (code.T & bit > 0).sum(0)[:, None].to(mass.dtype)
    remaining = torch.full_like(code[:1].expand(1, mass.shape[1]), 2**n - 1)  # classes without a probability
    p = mass.new_zeros(n, mass.shape[1])
    for _ in range(n):
        outside = (code & ~remaining > 0) | (code == 0)
        share = torch.where(outside, -1, belief / size.clamp_min(1))
        level, best = share.max(0, keepdim=True)
        p = torch.where(best & bit > 0, level.clamp_min(0), p)
        remaining = remaining & ~torch.where(remaining > 0, best, 0)
        if not torch.compiler.is_compiling() and not (remaining > 0).any():
            break
        belief = belief.gather(0, code | best) - belief.gather(0, best)
    return p / p.sum(0, keepdim=True)


def _mirror_descent(mass: Tensor, operators: BudgetOperators, tolerance: float, max_steps: int) -> Tensor:
    """Step size 1: negative entropy is 1-smooth relative to itself, so every step improves."""
    owner, member = operators.members_of_set.row, operators.members_of_set.column
    n, tiny = operators.budget.num_classes, torch.finfo(mass.dtype).tiny
    zero = mass.new_zeros(n, mass.shape[1])
    of_set = mass.index_select(0, owner)
    share = of_set / operators.sizes.to(mass.dtype).index_select(0, owner)[:, None]
    index = owner[:, None].expand_as(share)
    active = torch.ones_like(mass[:1], dtype=torch.bool)
    for step in range(max_steps):
        p = zero.index_add(0, member, share).clamp_min(tiny)
        if step % 10 == 0:  # the Frank–Wolfe gap bounds the distance to the optimum
            log = p.log()
            lowest = torch.zeros_like(mass).scatter_reduce(
                0, index, log.index_select(0, member), "amin", include_self=False
            )
            gap = (p * log).sum(0, keepdim=True) - (mass * lowest).sum(0, keepdim=True)
            active = gap > tolerance  # converged samples do not change, whatever the rest of the batch does
            if not torch.compiler.is_compiling() and not active.any():
                break
        scaled = share / p.index_select(0, member)
        total = torch.zeros_like(mass).index_add(0, owner, scaled).clamp_min(tiny)
        share = torch.where(active, scaled * (mass / total).index_select(0, owner), share)
    return zero.index_add(0, member, share)


def _entropy(p: Tensor, base: float, classes: int) -> Tensor:
    # 0 − x, not −x: the entropy of a certain prediction is 0, not −0.
    return torch.sub(ZERO, _log(p).mul_(p).sum(classes, keepdim=True), alpha=1 / math.log(base))


def _log(p: Tensor) -> Tensor:
    # The clamp keeps 0 · log 0 and its gradient finite.
    return p.clamp_min(torch.finfo(p.dtype).tiny).log_()


def _check_base(base: float) -> None:
    if not base > 1:
        raise RandomSetError("the base of the logarithm is too small", got=base, expected="more than 1")
