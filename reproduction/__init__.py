"""The paper's tables and figures, each reproduced by one command and shown beside the published values."""

from __future__ import annotations

from randomset.errors import RandomSetError
from reproduction import (
    ablations,
    accuracy,
    architectures,
    attacks,
    budgets,
    conformal,
    corruptions,
    detection,
    pictures,
    samples,
    transfer,
)
from reproduction.exhibit import Exhibit, Outcome
from reproduction.scales import SCALES
from reproduction.workshop import Workshop

__all__ = ["SCALES", "Exhibit", "Outcome", "Workshop", "exhibit", "exhibits"]

_MODULES = (
    *(accuracy, detection, pictures, corruptions, attacks, samples, budgets, ablations),
    *(conformal, architectures, transfer),
)


def exhibits() -> list[Exhibit]:
    """Return all tables, then all figures, in the paper's order."""

    def order(exhibit: Exhibit) -> tuple[bool, int]:
        kind, number = exhibit.id.split("-")
        return kind != "table", int(number)

    return sorted((exhibit for module in _MODULES for exhibit in module.EXHIBITS), key=order)


def exhibit(id: str) -> Exhibit:
    """Return a table or figure by its id, such as "table-1"."""
    by_id = {exhibit.id: exhibit for exhibit in exhibits()}
    if id not in by_id:
        raise RandomSetError("unknown table or figure", got=id, expected=", ".join(by_id))
    return by_id[id]
