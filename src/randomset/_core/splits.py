"""Stratified splits of labelled samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randomset._core.checks import is_whole
from randomset.errors import RandomSetError

__all__ = ["stratified_parts"]


def stratified_parts(labels: Any, shares: Sequence[float], seed: int = 0) -> list[NDArray[np.int64]]:
    """Split samples into a remainder and one part per share, with each class in the same proportions.

    A share is a fraction below 1 or a number of samples. Returns the sorted indices of the remainder, then
    of every part. A class with few samples goes to the remainder first.

    >>> rest, part = stratified_parts([0] * 8 + [1] * 4, [0.25])
    >>> len(rest), len(part)
    (9, 3)
    """
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    counts = [share if is_whole(share, 1) else round(share * len(codes)) for share in shares]
    fractions = [share for share in shares if not is_whole(share, 1)]
    if not all(0 <= share < 1 for share in fractions) or sum(fractions) >= 1 or sum(counts) >= len(codes):
        raise RandomSetError(
            "the shares leave no samples",
            got=f"{list(shares)} of {len(codes)} samples",
            expected="non-negative fractions that sum to less than 1, or numbers of samples",
        )
    generator = np.random.default_rng(seed)
    quantiles = np.empty(len(codes))  # of each sample within its class, in random order
    for code in range(codes.max() + 1):
        members = np.flatnonzero(codes == code)
        quantiles[members] = (generator.permutation(len(members)) + 0.5) / len(members)
    order = np.lexsort((generator.permutation(len(codes)), quantiles))
    ends = np.cumsum([len(codes) - sum(counts), *counts])  # the parts come last
    return [np.sort(part) for part in np.split(order, ends[:-1])]
