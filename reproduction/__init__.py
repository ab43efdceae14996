"""The paper as a program: every table and figure, each made by one call, beside what is printed there."""

from __future__ import annotations

from importlib import import_module

from randomset.errors import RandomSetError
from reproduction.exhibit import Exhibit, Outcome
from reproduction.scales import SCALES
from reproduction.workshop import Workshop

__all__ = ["SCALES", "Exhibit", "Outcome", "Workshop", "exhibit", "exhibits"]

_MODULES = (
    *("accuracy", "detection", "pictures", "corruptions", "attacks", "samples", "budgets", "ablations"),
    *("conformal", "architectures", "transfer"),
)


def exhibits() -> list[Exhibit]:
    """Return all tables, then all figures, in the paper's order."""
    found = [one for name in _MODULES for one in import_module(f"reproduction.{name}").EXHIBITS]

    def order(one: Exhibit) -> tuple[bool, int]:
        kind, number = one.id.split("-")
        return kind != "table", int(number)

    return sorted(found, key=order)


def exhibit(id: str) -> Exhibit:
    """Return a table or figure by its id, such as "table-1"."""
    every = {one.id: one for one in exhibits()}
    if id not in every:
        raise RandomSetError("the paper has no such table or figure", got=id, expected=", ".join(every))
    return every[id]
