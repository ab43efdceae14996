"""Focal sets: sets of classes as users write them, and lookups in an ordered family of them."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import SupportsIndex, TypeAlias

import torch
from torch import Tensor

from randomset.errors import BudgetError, LabelError

__all__ = ["FocalSets", "Members", "braces", "checked_set"]

Members: TypeAlias = "Iterable[str | SupportsIndex]"
"""A set of classes: names or indices."""


def braces(names: Iterable[str], shorten: int = 0) -> str:
    """Format a set; with `shorten`, list only that many names.

    >>> braces(["cat", "dog"]), braces("abcd", shorten=2)
    ('{cat, dog}', '{a, b, … 2 more}')
    """
    names = list(names)
    if 0 < shorten < len(names):
        names = [*names[:shorten], f"… {len(names) - shorten} more"]
    return "{" + ", ".join(names) + "}"


def checked_set(
    members: Members,
    names: tuple[str, ...],
    position: dict[str, int],
    kind: type[BudgetError] | type[LabelError] = BudgetError,
) -> tuple[int, ...]:
    """Return the sorted class indices of a set of names or indices; errors are of the given kind.

    >>> checked_set(["dog", 0], ("cat", "dog"), {"cat": 0, "dog": 1})
    (0, 1)
    """
    if isinstance(members, str) or not isinstance(members, Iterable):
        raise kind(
            "a set of classes must be a collection",
            got=members,
            expected="names or indices in a set, list or tuple",
            remedy='Wrap a single set in a list: [{"cat", "dog"}]',
        )
    if isinstance(members, Tensor):
        if members.dtype.is_floating_point or str(members.dtype) == "torch.bool" or members.dim() != 1:
            raise kind(
                "a tensor of class indices must be 1-D and integer",
                got=f"{members.dtype} {tuple(members.shape)}",
                remedy="Convert a mask to indices with mask.nonzero().flatten()",
            )
        members = members.tolist()
    focal: set[int] = set()
    for member in members:
        if isinstance(member, str):
            if member not in position:
                close = difflib.get_close_matches(member, names, n=1)
                remedy = f"Did you mean {close[0]}?" if close else ""
                raise kind(
                    "unknown class name", got=member, expected=f"one of {_listed(names)}", remedy=remedy
                )
            focal.add(position[member])
            continue
        try:
            if isinstance(member, bool):
                raise TypeError
            index = member.__index__()
        except (AttributeError, TypeError):
            raise kind("a class must be a name or an index", got=member) from None
        if not 0 <= index < len(names):
            raise kind("class index out of range", got=index, expected=f"0 to {len(names) - 1}")
        focal.add(index)
    if not focal:
        raise kind("a set of classes is empty", got="{}", expected="at least one class in every set")
    return tuple(sorted(focal))


def _listed(names: Sequence[str], shown: int = 10) -> str:
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")


class FocalSets:
    """Read-only view of an ordered family of focal sets; `Budget` adds construction and storage."""

    _classes: tuple[str, ...]
    _sets: tuple[tuple[int, ...], ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in label order."""
        return self._classes

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The sets as sorted tuples of class indices, in the order of the network's outputs."""
        return self._sets

    @cached_property
    def set_names(self) -> tuple[str, ...]:
        """The sets as text, such as ``{cat, dog}``."""
        return tuple(braces(self._classes[c] for c in focal) for focal in self._sets)

    @property
    def num_classes(self) -> int:
        """N, the number of classes (and of singletons)."""
        return len(self._classes)

    @property
    def num_sets(self) -> int:
        """K, the number of sets beyond the singletons."""
        return len(self._sets) - len(self._classes)

    def __len__(self) -> int:
        """Return |O| = N + K, the number of network outputs."""
        return len(self._sets)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Iterate over the sets as tuples of class names."""
        return (self.names_of(k) for k in range(len(self)))

    def names_of(self, index: int) -> tuple[str, ...]:
        """Return the class names of the set at an index."""
        return tuple(self._classes[c] for c in self._sets[index])

    def index(self, members: Members) -> int:
        """Return the index of a set, given by class names or class indices."""
        focal = checked_set(members, self._classes, self._class_position)
        try:
            return self._position[focal]
        except KeyError:
            name = braces(self._classes[c] for c in focal)
            raise BudgetError("the set is not in the budget", got=name) from None

    def __contains__(self, members: Members) -> bool:
        try:
            return checked_set(members, self._classes, self._class_position) in self._position
        except BudgetError:
            return False

    @cached_property
    def _position(self) -> dict[tuple[int, ...], int]:
        return {focal: k for k, focal in enumerate(self._sets)}

    @cached_property
    def _class_position(self) -> dict[str, int]:
        return {name: c for c, name in enumerate(self._classes)}

    @property
    def has_universal_set(self) -> bool:
        """Whether Θ is in the budget; it is then the last set."""
        return len(self._sets[-1]) == self.num_classes

    @cached_property
    def is_downward_closed(self) -> bool:
        """Whether every non-empty subset of every set is in the budget.

        Only then is the plain alternating sum of Eq. 2 the inverse of Bel; see `mass_from_belief`.

        >>> from randomset import Budget
        >>> Budget.from_sets([{0, 1, 2}], 3).is_downward_closed, Budget.powerset(3).is_downward_closed
        (False, True)
        """
        # By induction it suffices to check the subsets with one class less.
        return all(
            focal[:i] + focal[i + 1 :] in self._position
            for focal in self._sets[self.num_classes :]
            for i in range(len(focal))
        )

    def mask_from_sets(self, sets: Iterable[Members]) -> torch.Tensor:
        """Convert M sets of class names or indices, in the budget or not, to a boolean mask (M × N).

        >>> from randomset import Budget
        >>> Budget.singletons("abc").mask_from_sets([{"a", "c"}, [1]]).tolist()
        [[True, False, True], [False, True, False]]
        """
        focal = [checked_set(s, self._classes, self._class_position, LabelError) for s in sets]
        mask = torch.zeros(len(focal), self.num_classes, dtype=torch.bool)
        rows = [i for i, members in enumerate(focal) for _ in members]
        mask[rows, list(itertools.chain.from_iterable(focal))] = True
        return mask
