"""Sets of classes as users write them: names or indices, in any collection."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import SupportsIndex, TypeAlias

from torch import Tensor

from randomset.errors import BudgetError, LabelError

__all__ = ["Members", "braces", "checked_set"]

Members: TypeAlias = "Iterable[str | SupportsIndex]"
"""A set of classes: names or indices."""


def braces(names: Iterable[str], shorten: int = 0) -> str:
    """Format a set as {cat, dog}; with `shorten`, a large one as {cat, dog, … 98 more}."""
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
    """Return the sorted class indices of a set of names or indices; errors are of the given kind."""
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
