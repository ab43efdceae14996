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
    """Cut samples into a rest and parts, each class in the same proportions.

    A part is a share below 1, or a whole number of samples. Returns the places of the rest, then of every
    part, in ascending order. A class with few samples stays in the rest first.

    >>> rest, part = stratified_parts([0] * 8 + [1] * 4, [0.25])
    >>> len(rest), len(part)
    (9, 3)
    """
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    counts = [share if is_whole(share, 1) else round(share * len(codes)) for share in shares]
    small = [share for share in shares if not is_whole(share, 1)]
    if not all(0 <= share < 1 for share in small) or sum(small) >= 1 or sum(counts) >= len(codes):
        raise RandomSetError(
            "the shares leave nothing",
            got=f"{list(shares)} of {len(codes)} samples",
            expected="shares from 0 whose sum is below 1, or numbers of samples",
        )
    generator = np.random.default_rng(seed)
    places = np.empty(len(codes))
    for code in range(codes.max() + 1):  # where each sample stands within its class, between 0 and 1
        members = np.flatnonzero(codes == code)
        places[members] = (generator.permutation(len(members)) + 0.5) / len(members)
    order = np.lexsort((generator.permutation(len(codes)), places))
    ends = np.cumsum([len(codes) - sum(counts), *counts])  # the parts come last
    return [np.sort(part) for part in np.split(order, ends[:-1])]
