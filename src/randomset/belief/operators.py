"""The linear operators of a budget, as modules whose index tables are buffers.

Inside this file tensors are laid out *sets first*, (|O|, …): gathering and adding whole rows of a batch
is several times faster than picking numbers along the last dimension, forward and backward. `over_sets`
carries a function of such tensors over to the usual layout (…, |O|).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget
from randomset.belief.poset import Pairs, intersection_pairs, moebius_pairs, outside_modes, subset_pairs
from randomset.errors import BudgetError

__all__ = ["BudgetOperators", "PowerSetTransform", "SparseSum", "operators_of", "over_sets", "over_sets_each"]

_BLOCK = 2**19  # how many numbers a block of samples may hold at once: they should stay in the cache
_BLOCK_TURNED = 2**22  # where the input is sets-first already
_BLOCK_ACCELERATOR = 2**26
_SMALLEST_BLOCK = 16  # samples: rows that are shorter than a cache line are slow to move


def operators_of(budget: Budget | BudgetOperators, like: Tensor) -> BudgetOperators:
    """Return the operators of a budget on the device of a tensor."""
    if isinstance(budget, Budget):
        return budget.operators_on(like.device)
    if not isinstance(budget, BudgetOperators):
        raise BudgetError(
            "this is no budget", got=type(budget).__name__, expected="a Budget, or BudgetOperators"
        )
    if budget.sizes.device != like.device:
        raise BudgetError(
            "the operators are on another device than the tensor",
            got=f"{budget.sizes.device} and {like.device}",
            remedy="Move one of them, or give the Budget itself",
        )
    return budget


def over_sets(function: Callable[[Tensor], Tensor], x: Tensor, width: int = 0) -> Tensor:
    """Apply a function of sets-first tensors, (S, R) → (T, R), to a batch (…, S) → (…, T).

    `width` is how many numbers the function holds in between per sample; large batches go block by
    block, so that these, and the copy of an input that must be turned round, stay in the cache. Where
    autograd or a compiler watches, the batch stays whole. The result keeps the sets-first layout in
    memory: the next operator need not turn it round.
    """
    (result,) = over_sets_each(lambda columns: (function(columns),), x, width)
    return result


def over_sets_each(
    function: Callable[[Tensor], tuple[Tensor, ...]],
    x: Tensor,
    width: int = 0,
    *,
    sigmoid: bool = False,
) -> tuple[Tensor, ...]:
    """The same for a function with several results; with `sigmoid`, of the sigmoid of x."""
    batch, columns = x.shape[:-1], x.reshape(-1, x.shape[-1]).T
    whole = torch.compiler.is_compiling() or (torch.is_grad_enabled() and x.requires_grad)
    limit = _BLOCK_TURNED
    if not whole and not columns.is_contiguous():
        width, limit = max(width, len(columns)), _BLOCK
    limit = limit if x.device.type == "cpu" else _BLOCK_ACCELERATOR
    block = max(_SMALLEST_BLOCK, limit // width) if width else columns.shape[1]
    if whole or columns.shape[1] <= block:
        results = function((columns.sigmoid() if sigmoid else columns).contiguous())
    else:
        results = _in_blocks(function, columns, block, sigmoid)
    return tuple(part.T.reshape(*batch, len(part)) for part in results)


def _in_blocks(
    function: Callable[[Tensor], tuple[Tensor, ...]],
    columns: Tensor,
    block: int,
    sigmoid: bool,
) -> tuple[Tensor, ...]:
    count = columns.shape[1]
    results: tuple[Tensor, ...] = ()
    room = columns.new_empty(len(columns), block)
    for start in range(0, count, block):
        part = columns[:, start : start + block]
        if part.shape != room.shape:  # the last block
            room = columns.new_empty(part.shape)
        # A product with 1 copies transposed numbers up to twice as fast as `contiguous` does.
        done = function(torch.mul(part.sigmoid() if sigmoid else part, 1, out=room))
        results = results or tuple(one.new_empty(len(one), count) for one in done)
        for result, one in zip(results, done, strict=True):
            result[:, start : start + block] = one
    return results


class SparseSum(nn.Module):
    """A sparse matrix with rational entries, applied along the first dimension.

    out[r] = Σ_i value[i] / divisor[i] · x[column[i]] over the entries i of row r: (S, R) → (rows, R).

    >>> sums = SparseSum(Pairs(*torch.tensor([[0, 0, 2], [1, 2, 0], [1, 1, -1]])), num_rows=3)
    >>> sums(torch.tensor([[10.0], [1.0], [2.0]])).T
    tensor([[  3.,   0., -10.]])
    """

    row: Tensor
    column: Tensor
    start: Tensor
    value: Tensor | None
    divisor: Tensor | None

    def __init__(self, pairs: Pairs, num_rows: int, divisor: Tensor | None = None) -> None:
        super().__init__()
        row, by_row = pairs.row.sort(stable=True)
        length = torch.bincount(row, minlength=num_rows)
        value = None if (pairs.value == 1).all() and divisor is None else pairs.value[by_row].int()
        divisor = None if divisor is None else divisor[by_row].int()
        # Integers: `.half()` leaves them alone. Not persistent: they follow from the budget.
        self.register_buffer("row", row, persistent=False)  # 64 bits: ONNX scatters by nothing less
        self.register_buffer("column", pairs.column[by_row].int(), persistent=False)
        self.register_buffer("start", (length.cumsum(0) - length).int(), persistent=False)
        self.register_buffer("value", value, persistent=False)
        self.register_buffer("divisor", divisor, persistent=False)
        self._weights: dict[tuple[torch.dtype, torch.device], Tensor | None] = {}
        self._turned: SparseSum | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums: (S, R) → (rows, R)."""
        if torch.compiler.is_compiling() or x.dtype not in (torch.float32, torch.float64) or x.shape[1] == 0:
            return self._gathered(x, self._weight(x))
        try:
            if torch.is_grad_enabled() and x.requires_grad:
                return _Fused.apply(x, self)
            return self._fused(x)
        except (NotImplementedError, RuntimeError):  # inside torch.func's transforms
            return self._gathered(x, self._weight(x))

    def _fused(self, x: Tensor) -> Tensor:
        """The same sums, several times faster; not to be exported, nor differentiated as they are."""
        kind = (x.dtype, x.device)
        if kind not in self._weights:
            self._weights[kind] = self._weight(x)
        return nn.functional.embedding_bag(
            self.column, x, self.start, mode="sum", per_sample_weights=self._weights[kind]
        )

    def turned(self, columns: int) -> SparseSum:
        """Return the transposed matrix, of which `columns` is the number of rows."""
        if self._turned is None:
            value = self.row.new_ones(len(self.row)) if self.value is None else self.value.long()
            found = SparseSum(Pairs(self.column.long(), self.row, value), columns, divisor=self.divisor)
            self.__dict__["_turned"] = found  # not a part: its buffers follow from these
        assert self._turned is not None
        return self._turned.to(self.row.device)

    def _gathered(self, x: Tensor, weight: Tensor | None) -> Tensor:
        terms = x.index_select(0, self.column)
        if weight is not None:
            terms = terms * weight[:, None]
        return x.new_zeros(len(self.start), x.shape[1]).index_add(0, self.row, terms)

    def _weight(self, x: Tensor) -> Tensor | None:
        if self.value is None:
            return None
        value = self.value.to(x.dtype)
        return value if self.divisor is None else value / self.divisor.to(x.dtype)


class _Fused(torch.autograd.Function):
    """The sums of a sparse matrix; their gradient is the sums of the transposed one, any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sums: SparseSum) -> Tensor:
        ctx.sums, ctx.width = sums, len(x)
        return sums._fused(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.sums.turned(ctx.width)(gradient.contiguous()), None


class PowerSetTransform(nn.Module):
    """Sums over subsets and supersets in N · 2^N steps, through the array of all 2^N sets.

    In that array the set A stands at Σ_{c ∈ A} 2^c. Sets that are not in the budget carry zero.
    """

    code: Tensor
    source: Tensor

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self.num_classes = budget.num_classes
        code = torch.tensor([sum(1 << c for c in focal) for focal in budget.sets])
        source = torch.full((2**budget.num_classes,), len(budget))  # past the end: a zero
        source[code] = torch.arange(len(budget))
        self.register_buffer("code", code.int(), persistent=False)
        self.register_buffer("source", source.int(), persistent=False)

    def all_sets(self, x: Tensor) -> Tensor:
        """Return a new (2^N, …) array with x (|O|, …) at the budget's sets and zero elsewhere."""
        return torch.cat((x, torch.zeros_like(x[:1]))).index_select(0, self.source)

    def in_budget(self, array: Tensor) -> Tensor:
        """Read the budget's sets from an array of all sets."""
        return array.index_select(0, self.code)

    def add_subsets(self, array: Tensor, sign: int = 1) -> Tensor:
        """Replace each entry by the sum over its subsets (sign −1: the Moebius inverse), in place."""
        for c in range(self.num_classes):
            pair = array.unflatten(0, (-1, 2, 2**c))
            pair[:, 1].add_(pair[:, 0], alpha=sign)
        return array

    def add_supersets(self, array: Tensor, sign: int = 1) -> Tensor:
        """Replace each entry by the sum over its supersets (sign −1: the inverse), in place."""
        for c in range(self.num_classes):
            pair = array.unflatten(0, (-1, 2, 2**c))
            pair[:, 0].add_(pair[:, 1], alpha=sign)
        return array

    def sum_per_class(self, array: Tensor) -> Tensor:
        """Sum over the sets that contain each class, (2^N, …) → (N, …), in 2 · 2^N steps."""
        sums = []
        for _ in range(self.num_classes):
            without, having = array.chunk(2)  # by the last class that is left
            sums.append(having.sum(0))
            array = without + having
        return torch.stack(sums[::-1])


class BudgetOperators(nn.Module):
    """Every linear operator of a budget; put it inside a network, and it moves and saves with it.

    A sparse family uses gathered sums; a budget that fills a good part of the power set uses the fast
    transform. The persistent buffers `members` and `fingerprint` identify the budget in a state dict:
    loading the state of a network with another budget is refused. All methods take sets-first tensors.

    >>> operators = BudgetOperators(Budget.from_sets([{0, 1}], 3))
    >>> operators.invert_subsets(torch.tensor([[0.5], [0.2], [0.1], [0.9]])).T
    tensor([[0.5000, 0.2000, 0.1000, 0.2000]])
    """

    members: Tensor
    fingerprint: Tensor
    sizes: Tensor

    def __init__(self, budget: Budget, *, identify: bool = True) -> None:
        super().__init__()
        self.budget = budget
        with outside_modes():
            self._build(identify)
        # A prediction lives on the budget with Θ: a network that holds one holds the other.
        theta = budget.with_universal_set()
        self._complete = None if theta is budget else BudgetOperators(theta, identify=False)

    def _build(self, identify: bool) -> None:
        budget = self.budget
        n, total = budget.num_classes, len(budget)
        sizes = torch.tensor([len(focal) for focal in budget.sets])
        owner = torch.repeat_interleave(sizes)
        member = torch.tensor([c for focal in budget.sets for c in focal])
        self.register_buffer("sizes", sizes.int(), persistent=False)
        # N, then the sets beyond the singletons one after another, each closed by −1.
        flat = [n, *(c for focal in budget.sets[n:] for c in (*focal, -1))]
        self.register_buffer("members", torch.tensor(flat, dtype=torch.int32), identify)
        mark = list(bytes.fromhex(budget.fingerprint))
        self.register_buffer("fingerprint", torch.tensor(mark, dtype=torch.uint8), identify)

        self.transform = PowerSetTransform(budget) if n <= 20 and 2**n <= 4 * total else None
        self.footprint = 2 * 2**n if self.transform else 0  # numbers held per sample: see over_sets
        ones = torch.ones_like(member)
        self.members_of_set = SparseSum(Pairs(owner, member, ones), total)
        self.moebius: SparseSum | None = None
        if self.transform and budget.is_downward_closed:
            return
        meeting = intersection_pairs(budget)
        subsets = subset_pairs(budget, meeting)
        # One row more than the budget has sets: room for the mass of Θ if the budget lacks it.
        self.moebius = SparseSum(moebius_pairs(budget, subsets), total + (not budget.has_universal_set))
        if self.transform:
            return
        self.subsets = SparseSum(subsets, total)
        self.supersets = SparseSum(Pairs(subsets.column, subsets.row, subsets.value), total)
        self.meeting = SparseSum(meeting._replace(value=torch.ones_like(meeting.value)), total)
        self.sets_of_class = SparseSum(Pairs(member, owner, ones), n)
        self.shares_of_class = SparseSum(Pairs(member, owner, ones), n, divisor=sizes[owner])

    @property
    def complete(self) -> BudgetOperators:
        """The operators of the budget with Θ."""
        return self if self._complete is None else self._complete

    def sum_subsets(self, x: Tensor) -> Tensor:
        """Sum over the subsets of each set, itself included: (|O|, R) → (|O|, R)."""
        if self.transform is None:
            return self.subsets(x)
        return self.transform.in_budget(self.transform.add_subsets(self.transform.all_sets(x)))

    def invert_subsets(self, x: Tensor) -> Tensor:
        """Apply the inverse of `sum_subsets`: (|O|, R) → (|O|, R)."""
        return self.invert_subsets_with_room(x)[: len(self.budget)]

    def invert_subsets_with_room(self, x: Tensor) -> Tensor:
        """The same with a last row for Θ, zero if the budget lacks Θ: (|O|, R) → (|O ∪ {Θ}|, R)."""
        if self.moebius is not None:
            return self.moebius(x)
        assert self.transform is not None
        array = self.transform.add_subsets(self.transform.all_sets(x), sign=-1)
        mass = self.transform.in_budget(array)
        return mass if self.budget.has_universal_set else nn.functional.pad(mass, (0, 0, 0, 1))

    def sum_supersets(self, x: Tensor) -> Tensor:
        """Sum over the supersets of each set, itself included: (|O|, R) → (|O|, R)."""
        if self.transform is None:
            return self.supersets(x)
        return self.transform.in_budget(self.transform.add_supersets(self.transform.all_sets(x)))

    def sum_meeting(self, x: Tensor) -> Tensor:
        """Sum over the sets that meet each set: (|O|, R) → (|O|, R)."""
        if self.transform is None:
            return self.meeting(x)
        # Everything but the subsets of the complement, which stands at 2^N − 1 − i.
        outside = self.transform.add_subsets(self.transform.all_sets(x)).flip(0)
        return x.sum(0, keepdim=True) - self.transform.in_budget(outside)

    def sum_per_class(self, x: Tensor, *, shared: bool = False) -> Tensor:
        """Sum over the sets that contain each class: (|O|, R) → (N, R).

        With `shared`, each set first divides its value equally among its classes.
        """
        if self.transform is None:
            return self.shares_of_class(x) if shared else self.sets_of_class(x)
        x = x / self.sizes.to(x.dtype)[:, None] if shared else x
        return self.transform.sum_per_class(self.transform.all_sets(x))

    def sum_per_set(self, x: Tensor) -> Tensor:
        """Sum over the classes of each set: (N, R) → (|O|, R)."""
        return self.members_of_set(x)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        remedy = "Build the network with the budget that was saved beside its state"
        stored = state_dict.get(prefix + "members")
        if stored is not None and not torch.equal(stored.cpu(), self.members.cpu()):
            raise BudgetError(
                "the saved state belongs to another budget",
                got=_described(stored),
                expected=_described(self.members),
                remedy=remedy,
            )
        mark = state_dict.get(prefix + "fingerprint")
        if mark is not None and not torch.equal(mark.cpu(), self.fingerprint.cpu()):
            raise BudgetError(
                "the saved state belongs to a budget whose classes have other names or another order",
                expected=", ".join(self.budget.classes[:10]),
                remedy=remedy,
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def _described(members: Tensor) -> str:
    n, *rest = members.tolist() or [0]
    sets = " ".join(map(str, rest)).split("-1")[:-1]
    shown = "".join(f" {{{', '.join(focal.split())}}}" for focal in sets[:4])
    return f"{n} classes and {len(sets)} set{'' if len(sets) == 1 else 's'}:{shown or ' none'}"
