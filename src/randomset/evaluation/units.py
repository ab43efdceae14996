"""Units of the uncertainty scores, for tables, figures and reports."""

from __future__ import annotations

__all__ = ["UNITS", "with_unit"]

UNITS = {"entropy": "bits", "non-specificity": "bits", "mutual information": "bits"}
"""All other scores are dimensionless: shares or differences of probabilities."""


def with_unit(score: str, shown: str | None = None) -> str:
    """Return the name of a score, or the name to show instead, with its unit.

    >>> with_unit("entropy"), with_unit("credal width")
    ('entropy, bits', 'credal width')
    """
    name = score if shown is None else shown
    return f"{name}, {UNITS[score]}" if score in UNITS else name
