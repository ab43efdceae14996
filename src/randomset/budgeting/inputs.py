"""Features and labels as users have them, checked before any work is done."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from randomset.belief.naming import checked_classes
from randomset.errors import BudgetError, LabelError, RandomSetError, ShapeError

__all__ = [
    "check_num_sets",
    "check_spread",
    "checked_features",
    "encoded_labels",
    "is_number",
    "is_whole",
    "number_of_sets",
    "stratified_parts",
]


def checked_features(features: Any, width: int | None = None) -> NDArray[Any]:
    """Return features as a matrix (n × F) of finite numbers, with F as expected if `width` is given.

    >>> checked_features([[1, 2], [3, float("nan")]])
    Traceback (most recent call last):
        ...
    randomset.errors.ShapeError: the features are not all finite; got 1 NaN or infinite value, the first
    in row 1. Remove these samples or fill the gaps first
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
            "the features are not a matrix of numbers",
            got=str(error),
            expected="an array or tensor of shape (samples × features), or a pair (model, data loader)",
        ) from None
    if matrix.ndim != 2 or not matrix.size:
        raise ShapeError(
            "the features are not a matrix with content",
            got=f"shape {matrix.shape}",
            expected="samples × features",
            remedy="features.reshape(len(features), -1) flattens images" if matrix.ndim > 2 else "",
        )
    if width is not None and matrix.shape[1] != width:
        raise ShapeError(
            "the features have another width than before", got=matrix.shape[1], expected=f"{width} columns"
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
            remedy="Remove these samples or fill the gaps first",
        )
    return matrix.astype(np.float64) if largest > 1e12 else matrix  # squares must not overflow


def encoded_labels(
    labels: Any, samples: int, classes: SupportsIndex | Sequence[str] | None = None, at_least: int = 2
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels as positions 0 to N − 1, and the names of the classes.

    Whole numbers are positions, so that label c is output c of a network: without names, there are as many
    classes as the largest label says. Text is looked up in `classes` or, without, sorted.

    >>> encoded_labels(["dog", "cat", "dog"], 3)
    (array([1, 0, 1]), ('cat', 'dog'))
    >>> encoded_labels([0, 2], 2, ["a", "b", "c"])
    (array([0, 2]), ('a', 'b', 'c'))
    """
    if labels is None:
        raise LabelError(
            "there are no labels", remedy="Pass them as the second argument, or a data loader that gives them"
        )
    given = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if given.shape != (samples,):
        raise LabelError(
            "the labels do not match the features",
            got=f"labels of shape {given.shape} for {samples} samples",
            expected="one label for each sample",
        )
    names = None if classes is None else checked_classes(_as_text(classes))
    if given.dtype.kind == "O" and all(isinstance(label, (int, np.integer)) for label in given.tolist()):
        given = given.astype(np.int64)
    if given.dtype.kind in "OUST":
        codes, names = _from_text([_text(label) for label in given.tolist()], names)
    else:
        codes, names = _from_numbers(given, names)
    present = len(np.unique(codes))
    if present < at_least:
        raise LabelError(
            "the labels hold one class only",
            got=f"class {names[int(codes[0])]} for all {samples} samples",
            expected="two or more classes, so that there is something to overlap",
        )
    return codes, names


def _as_text(classes: Any) -> Any:
    """Turn arrays of names, numbers too, into a list of text."""
    if isinstance(classes, np.ndarray):
        classes = classes.astype(str).tolist() if classes.dtype.kind in "iub" else classes.tolist()
    if not isinstance(classes, list):
        return classes
    return [_decoded(name) if isinstance(name, bytes) else name for name in classes]


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise LabelError("a name is no text in UTF-8", got=repr(name)) from None


def _text(label: Any) -> str:
    if isinstance(label, bytes):
        return _decoded(label)
    if not isinstance(label, str):
        raise LabelError("a label is neither text nor a whole number", got=repr(label))
    return label


def _from_text(labels: list[str], names: tuple[str, ...] | None) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if names is None:
        names = tuple(sorted(set(labels)))
        if len(names) == 1:
            names = (*names, names[0] + " and no other")  # one class: refused by the caller, which names it
    position = {name: i for i, name in enumerate(names)}
    strange = next((label for label in labels if label not in position), None)
    if strange is not None:
        raise LabelError(
            "a label names no class",
            got=strange,
            expected="one of " + ", ".join(names[:10]) + "…" * (len(names) > 10),
        )
    return np.array([position[label] for label in labels]), names


def _from_numbers(
    labels: NDArray[Any], names: tuple[str, ...] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if labels.dtype.kind not in "iubf" or not np.array_equal(labels, np.floor(labels)):
        raise LabelError("the labels are neither whole numbers nor names", got=f"type {labels.dtype}")
    if (
        float(np.abs(labels.astype(np.float64)).max(initial=0)) >= 2**62
    ):  # infinite, or beyond what int64 holds
        raise LabelError(
            "a label is out of range", got=str(labels.max()), expected="labels that count from 0"
        )
    codes = labels.astype(np.int64)
    if codes.min() < 0:
        raise LabelError("a label is negative", got=int(codes.min()), expected="labels that count from 0")
    largest = int(codes.max())
    if names is None:
        if largest + 1 > max(2 * len(np.unique(codes)), 10):
            raise LabelError(
                "the labels are not numbered without gaps",
                got=f"{len(np.unique(codes))} different labels up to {largest}",
                expected="labels 0 to N − 1",
                remedy="Pass names as labels, or the names of all classes as classes=…",
            )
        names = tuple(map(str, range(max(largest + 1, 2))))
    if largest >= len(names):
        raise LabelError(
            "a label is beyond the last class",
            got=largest,
            expected=f"0 to {len(names) - 1} for {len(names)} classes",
        )
    return codes, names


def check_spread(points: NDArray[Any]) -> None:
    """Refuse points that all lie in one place."""
    if not (points != points[0]).any():
        raise RandomSetError(
            "the features are constant: every sample is the same",
            remedy="Check that the features come from the right layer of a trained model",
        )


def is_whole(value: Any, least: int) -> bool:
    """Whether a value is a whole number, no truth value, and not below a least one."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= least


def is_number(value: Any, least: float = 0) -> bool:
    """Whether a value is a finite number, no truth value, and not below a least one."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value) and float(value) >= least
    except OverflowError:  # a whole number beyond all floats
        return False


def number_of_sets(num_classes: int) -> int:
    """Return how many sets of two or more classes there are: 2^N − N − 1."""
    return 2**num_classes - num_classes - 1


def check_num_sets(num_sets: Any, num_classes: int, *, auto: bool = True) -> None:
    """Refuse a number of sets that is none, or that is more than exist."""
    if auto and isinstance(num_sets, str) and num_sets == "auto":
        return
    if not is_whole(num_sets, 0):
        raise BudgetError(
            "num_sets is not a number of sets",
            got=repr(num_sets),
            expected="a whole number" + (' or "auto"' if auto else ""),
        )
    if num_sets > number_of_sets(num_classes):
        raise BudgetError(
            "more sets are asked for than exist",
            got=f"{num_sets} sets of {num_classes} classes",
            expected=f"at most 2^{num_classes} − {num_classes} − 1 = {number_of_sets(num_classes)}",
            remedy="Ask for fewer; Budget.powerset gives all of them",
        )


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
