"""Argument checks."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from randomset.errors import ShapeError

__all__ = ["checked_features", "is_number", "is_whole"]


def is_whole(value: Any, least: int) -> bool:
    """Return whether a value is an integer, not a bool, and at least `least`."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= least


def is_number(value: Any, least: float = 0) -> bool:
    """Return whether a value is a finite real number, not a bool, and at least `least`."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value) and float(value) >= least
    except OverflowError:  # an integer too large for a float
        return False


def checked_features(features: Any, width: int | None = None) -> NDArray[Any]:
    """Return features as a floating-point matrix (n × F) of finite numbers; F must equal `width`, if given.

    >>> checked_features([[1, 2], [3, float("nan")]])
    Traceback (most recent call last):
        ...
    randomset.errors.ShapeError: the features are not all finite; got 1 NaN or infinite value, the first
    in row 1. Remove these samples or impute the values first
    """
    if isinstance(features, Tensor):
        features = features.detach().to_dense().cpu()
        features = features.float().numpy() if features.dtype.itemsize < 4 else features.numpy()
    try:
        matrix = np.asarray(features)
        if matrix.dtype.kind == "c":
            raise TypeError("complex numbers")
        if matrix.dtype.kind not in "fiub":
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            "the features must be numbers",
            got=str(error),
            expected="an array or tensor of shape (samples × features), or a pair (model, data loader)",
        ) from None
    if matrix.ndim != 2 or not matrix.size:
        raise ShapeError(
            "the features must be a non-empty 2-D array",
            got=f"shape {matrix.shape}",
            expected="samples × features",
            remedy="Flatten images with features.reshape(len(features), -1)" if matrix.ndim > 2 else "",
        )
    if width is not None and matrix.shape[1] != width:
        raise ShapeError(
            "the number of features has changed", got=matrix.shape[1], expected=f"{width} columns"
        )
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize < 4:
        matrix = matrix.astype(np.float32 if matrix.dtype.itemsize < 4 else np.float64)
    largest = max(abs(float(matrix.min())), abs(float(matrix.max())))  # NaN if any value is
    if not np.isfinite(largest):
        bad = ~np.isfinite(matrix)
        count = int(bad.sum())
        raise ShapeError(
            "the features are not all finite",
            got=f"{count} NaN or infinite value{'s' if count > 1 else ''}, the first in row "
            f"{int(bad.any(1).argmax())}",
            remedy="Remove these samples or impute the values first",
        )
    return matrix.astype(np.float64) if largest > 1e12 else matrix  # squares must not overflow
