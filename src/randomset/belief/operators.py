"""The linear operators of a budget, as one module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget
from randomset.belief.sums import (
    Pairs,
    PowerSetTransform,
    SparseSum,
    intersection_pairs,
    member_pairs,
    moebius_pairs,
    outside_modes,
    subset_pairs,
)
from randomset.errors import BudgetError

__all__ = ["BudgetOperators", "operators_of"]

_MAX_DENSE_CLASSES = 12  # half a megabyte
_MAX_GAPS = 2**15  # samples × sets × classes
_MAX_DENSE = 4096  # sets × classes, or sets × sets, of a small budget
_MAX_PRODUCT = 2**15  # samples × entries of such a matrix


def operators_of(budget: Budget | BudgetOperators, like: Tensor) -> BudgetOperators:
    """Return the operators of a budget on the device of a tensor."""
    if isinstance(budget, Budget):
        return budget.operators_on(like.device)
    if not isinstance(budget, BudgetOperators):
        raise BudgetError(
            "budget has the wrong type", got=type(budget).__name__, expected="a Budget or BudgetOperators"
        )
    sizes: Any = budget._buffers["sizes"]  # faster than the attribute
    if sizes.device != like.device:
        raise BudgetError(
            "the operators and the tensor are on different devices",
            got=f"{sizes.device} and {like.device}",
            remedy="Move one of them, or pass the Budget itself",
        )
    return budget


class BudgetOperators(nn.Module):
    """The linear operators of a budget, as a submodule that moves and saves with its network.

    Sparse budgets use gathered sums; budgets that fill much of the power set use the fast transform. The
    persistent buffers `members` and `fingerprint` identify the budget in a state dict, so that loading the
    state of a network with another budget raises an error. All methods take sets-first tensors.

    >>> operators = BudgetOperators(Budget.from_sets([{0, 1}], 3))
    >>> operators.invert_subsets(torch.tensor([[0.5], [0.2], [0.1], [0.9]])).T
    tensor([[0.5000, 0.2000, 0.1000, 0.2000]])
    """

    members: Tensor
    fingerprint: Tensor
    sizes: Tensor
    last_rank: Tensor
    rank_sums: Tensor

    def __init__(self, budget: Budget, *, identify: bool = True) -> None:
        super().__init__()
        self.budget = budget
        self._inverse: dict[torch.dtype, Tensor] = {}
        self._per_class: dict[torch.dtype, Tensor] = {}
        with outside_modes():
            self._build(identify)
            self._build_products()
        with_theta = budget.with_universal_set()  # the budget of the predictions
        self._complete = None if with_theta is budget else BudgetOperators(with_theta, identify=False)

    def _build(self, identify: bool) -> None:
        budget = self.budget
        n, total = budget.num_classes, len(budget)
        members = owner, member, ones = member_pairs(budget)
        sizes = torch.bincount(owner)
        self.register_buffer("sizes", sizes.int(), persistent=False)
        self.register_buffer("last_rank", sizes - 1, persistent=False)  # see least_committed_mass
        self.register_buffer("rank_sums", sizes * (sizes - 1) // 2, persistent=False)
        # N, then the sets beyond the singletons, each terminated by −1.
        flat = [n, *(c for focal in budget.sets[n:] for c in (*focal, -1))]
        self.register_buffer("members", torch.tensor(flat, dtype=torch.int32), identify)
        digest = list(bytes.fromhex(budget.fingerprint))
        self.register_buffer("fingerprint", torch.tensor(digest, dtype=torch.uint8), identify)

        self.transform = PowerSetTransform(budget) if n <= 20 and 2**n <= 4 * total else None
        self.footprint = 2 * 2**n if self.transform else 0  # numbers per sample: see over_sets
        self._shares: dict[torch.dtype, Tensor] = {}
        self._inside: dict[torch.dtype, tuple[Tensor, Tensor, Tensor]] = {}
        is_small = n * total <= _MAX_DENSE
        if is_small:
            inside = torch.zeros(total, n, dtype=torch.bool)
            inside[owner, member] = True
            beyond = torch.zeros(2, total, n)
            beyond[0, ~inside] = torch.inf
            sign = torch.stack((inside.float(), -(~inside).float()))
            self._inside = {
                dtype: (beyond.to(dtype), sign.to(dtype), sizes.to(dtype))
                for dtype in (torch.float32, torch.float64)
            }
        if is_small or (self.transform and n <= _MAX_DENSE_CLASSES):
            shares = torch.zeros(n, total, dtype=torch.float64)
            shares[member, owner] = 1 / sizes[owner].double()
            self._shares = {dtype: shares.to(dtype) for dtype in (torch.float32, torch.float64)}
        self.members_of_set = SparseSum(members, total)
        self.moebius: SparseSum | None = None
        if self.transform and budget.is_downward_closed:
            return
        intersecting = intersection_pairs(budget)
        subsets = subset_pairs(budget, intersecting)
        # If the budget lacks Θ, one more row for its mass.
        self.moebius = SparseSum(moebius_pairs(budget, subsets), total + (not budget.has_universal_set))
        if self.transform:
            return
        self.subsets = SparseSum(subsets, total)
        self.supersets = SparseSum(Pairs(subsets.column, subsets.row, subsets.value), total)
        self.intersecting = SparseSum(intersecting._replace(value=torch.ones_like(intersecting.value)), total)
        self.sets_of_class = SparseSum(Pairs(member, owner, ones), n)
        self.shares_of_class = SparseSum(Pairs(member, owner, ones), n, divisor=sizes[owner])

    def _build_products(self) -> None:
        """Build dense matrices, which are faster for a few samples of a small budget."""
        total = len(self.budget)
        if total * (total + 1) > _MAX_DENSE:
            return
        each = torch.eye(total, dtype=torch.float64)
        for dtype in (torch.float32, torch.float64):
            self._inverse[dtype] = self.invert_subsets_with_theta(each).to(dtype)
            self._per_class[dtype] = self.sum_per_class(each).to(dtype)

    @property
    def complete(self) -> BudgetOperators:
        """The operators of the budget with Θ."""
        return self if self._complete is None else self._complete

    def sum_subsets(self, x: Tensor) -> Tensor:
        """Sum over the subsets of each set, including itself: (|O|, R) → (|O|, R)."""
        if self.transform is None:
            return self.subsets(x)
        return self.transform.in_budget(self.transform.add_subsets(self.transform.all_sets(x)))

    def invert_subsets(self, x: Tensor) -> Tensor:
        """Apply the inverse of `sum_subsets`: (|O|, R) → (|O|, R)."""
        return self.invert_subsets_with_theta(x)[: len(self.budget)]

    def invert_subsets_with_theta(self, x: Tensor) -> Tensor:
        """`invert_subsets`, with a zero row for Θ if the budget lacks it: (|O|, R) → (|O ∪ {Θ}|, R)."""
        if self.moebius is not None:
            return self.moebius(x)
        assert self.transform is not None
        array = self.transform.add_subsets(self.transform.all_sets(x), sign=-1)
        mass = self.transform.in_budget(array)
        return mass if self.budget.has_universal_set else nn.functional.pad(mass, (0, 0, 0, 1))

    def sum_supersets(self, x: Tensor) -> Tensor:
        """Sum over the supersets of each set, including itself: (|O|, R) → (|O|, R)."""
        if self.transform is None:
            return self.supersets(x)
        return self.transform.in_budget(self.transform.add_supersets(self.transform.all_sets(x)))

    def largest_superset(self, x: Tensor) -> Tensor:
        """Return the largest non-negative value among the supersets of each set: (|O|, R) → (|O|, R)."""
        if self.transform is None:
            return self.supersets.largest(x)
        return self.transform.in_budget(self.transform.largest_superset(self.transform.all_sets(x)))

    def sum_intersecting(self, x: Tensor) -> Tensor:
        """Sum over the sets that intersect each set: (|O|, R) → (|O|, R)."""
        if self.transform is None:
            return self.intersecting(x)
        # All but the subsets of the complement, whose code is 2^N − 1 − i.
        outside = self.transform.add_subsets(self.transform.all_sets(x)).flip(0)
        return x.sum(0, keepdim=True) - self.transform.in_budget(outside)

    def sum_per_class(self, x: Tensor, *, shared: bool = False) -> Tensor:
        """Sum over the sets that contain each class: (|O|, R) → (N, R).

        With `shared`, each set first divides its value equally among its classes.
        """
        if shared and (shares := self.dense_shares(x)) is not None:
            return shares @ x
        if self.transform is None:
            return self.shares_of_class(x) if shared else self.sets_of_class(x)
        x = x / self.sizes.to(x.dtype)[:, None] if shared else x
        return self.transform.sum_per_class(self.transform.all_sets(x))

    def dense_shares(self, x: Tensor) -> Tensor | None:
        """Return the matrix (N × |O|) with 1 / |A| for each class in each set A, or None.

        A product with it is fastest on the CPU for small budgets, and for dense ones of few classes. None for
        others, when compiling or exporting, and if matrix products are set to a reduced precision.
        """
        return _if_exact(self._shares.get(x.dtype), x)

    def dense_inverse(self, x: Tensor) -> Tensor | None:
        """Return the matrix of `invert_subsets_with_theta`, if it is the fastest way for a batch (…, |O|).

        That is the case for a few samples of a small budget: see `dense_shares`.
        """
        return _if_exact(self._inverse.get(x.dtype), x, few=True)

    def dense_members(self, x: Tensor) -> Tensor | None:
        """Return the matrix of `sum_per_class`, if it is the fastest way for a batch (…, |O|)."""
        return _if_exact(self._per_class.get(x.dtype), x, few=True)

    def gaps(self, p: Tensor) -> Tensor | None:
        """Return |A| max(0, min_{c ∈ A} p(c) − max_{c ∉ A} p(c)) for each set: (…, N) → (…, |O|).

        None for large budgets or batches, where comparing every set with every class would be slow, on other
        devices than the CPU, and when compiling or exporting.
        """
        tables = self._inside.get(p.dtype)
        if (
            tables is None
            or not p.is_cpu
            or torch.compiler.is_compiling()
            or p.numel() * len(self.budget) > _MAX_GAPS
            or (torch.is_grad_enabled() and p.requires_grad)
        ):
            return None
        beyond, sign, sizes = tables
        # The smallest p(c) inside, and minus the largest one outside.
        extremes = torch.addcmul(beyond, p[..., None, None, :], sign).amin(-1)
        return extremes.sum(-2).clamp_min_(0).mul_(sizes)

    def sum_per_set(self, x: Tensor) -> Tensor:
        """Sum over the classes of each set: (N, R) → (|O|, R)."""
        return self.members_of_set(x)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        remedy = "Build the network with the budget that was saved with its state"
        stored = state_dict.get(prefix + "members")
        if stored is not None and not torch.equal(stored.cpu(), self.members.cpu()):
            raise BudgetError(
                "the saved state belongs to another budget",
                got=_described(stored),
                expected=_described(self.members),
                remedy=remedy,
            )
        digest = state_dict.get(prefix + "fingerprint")
        if digest is not None and not torch.equal(digest.cpu(), self.fingerprint.cpu()):
            raise BudgetError(
                "the saved state belongs to a budget with different class names or a different order",
                expected=", ".join(self.budget.classes[:10]),
                remedy=remedy,
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def _if_exact(matrix: Tensor | None, x: Tensor, *, few: bool = False) -> Tensor | None:
    """Return a matrix if products of it and a batch are fast and exact, and `few` if need be; else None."""
    if matrix is None or not x.is_cpu or torch.compiler.is_compiling():
        return None
    if few and x.numel() * len(matrix) > _MAX_PRODUCT:
        return None
    return matrix if _products_are_exact() else None


def _products_are_exact() -> bool:
    """Return whether matrix products on the CPU keep the precision of their dtype."""
    try:
        return not torch.is_autocast_enabled("cpu") and torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # the precision was set through torch's newer API
        return False


def _described(members: Tensor) -> str:
    n, *rest = members.tolist() or [0]
    sets = " ".join(map(str, rest)).split("-1")[:-1]
    shown = "".join(f" {{{', '.join(focal.split())}}}" for focal in sets[:4])
    return f"{n} classes and {len(sets)} set{'' if len(sets) == 1 else 's'}:{shown or ' none'}"
