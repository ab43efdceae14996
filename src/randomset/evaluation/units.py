"""The units of uncertainty scores, as tables, figures and reports name them."""

from __future__ import annotations

__all__ = ["UNITS", "with_unit"]

UNITS = {"entropy": "bits", "non-specificity": "bits", "mutual information": "bits"}
"""Scores that are not here have none: they are shares or widths of probabilities."""


def with_unit(score: str, shown: str | None = None) -> str:
    """Name a score, or what is shown in place of its name, with its unit.

    >>> with_unit("entropy"), with_unit("credal width")
    ('entropy, bits', 'credal width')
    """
    name = score if shown is None else shown
    return f"{name}, {UNITS[score]}" if score in UNITS else name
