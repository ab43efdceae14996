"""Argument checks; labels, class names and sets of classes as users give them; stratified splits."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset.errors import BudgetError, LabelError, RandomSetError, ShapeError

__all__ = [
    "ENOUGH",
    "Members",
    "braces",
    "checked_classes",
    "checked_features",
    "checked_set",
    "encoded_labels",
    "enough",
    "is_number",
    "is_whole",
    "listed",
    "stratified",
    "stratified_parts",
]


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


def listed(names: Iterable[object], shown: int = 10) -> str:
    """Join names with commas; beyond `shown` of them, only count the rest.

    >>> listed("abcde", shown=3)
    'a, b, c and 2 more'
    """
    texts = [str(name) for name in names]
    rest = len(texts) - shown
    return ", ".join(texts[:shown]) + (f" and {rest} more" if rest > 0 else "")


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


# -- labels and class names ------------------------------------------------------------------------


def encoded_labels(
    labels: Any, samples: int, classes: SupportsIndex | Sequence[str] | None = None, at_least: int = 2
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels as class indices 0 to N − 1, and the class names.

    Integers are indices, so that label c is output c of a network; without `classes`, the largest label
    determines N. Text is looked up in `classes` or, without them, in the sorted labels.

    >>> encoded_labels(["dog", "cat", "dog"], 3)
    (array([1, 0, 1]), ('cat', 'dog'))
    >>> encoded_labels([0, 2], 2, ["a", "b", "c"])
    (array([0, 2]), ('a', 'b', 'c'))
    """
    if labels is None:
        raise LabelError(
            "missing labels", remedy="Pass them as the second argument, or a data loader that yields them"
        )
    given = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if given.shape != (samples,):
        raise LabelError(
            "the labels do not match the features",
            got=f"labels of shape {given.shape} for {samples} samples",
            expected="one label per sample",
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
            "the labels contain only one class",
            got=f"class {names[int(codes[0])]} for all {samples} samples",
            expected="two or more classes",
        )
    return codes, names


def checked_classes(classes: SupportsIndex | Iterable[str]) -> tuple[str, ...]:
    """Return the class names as a tuple; a number N stands for the names "0" to "N − 1"."""
    if isinstance(classes, (AbstractSet, Mapping)):
        raise BudgetError(
            "the classes are unordered",
            got=type(classes).__name__,
            expected="a list or tuple of names in label order",
        )
    if isinstance(classes, Iterable):
        names = tuple(classes)
    else:
        try:
            names = tuple(str(c) for c in range(operator.index(classes)))
        except TypeError:
            raise BudgetError("classes must be names or their number", got=repr(classes)) from None
    for name in names:
        if not isinstance(name, str):
            raise BudgetError(
                "a class name must be a string",
                got=name,
                expected="from_sets(sets, classes) with strings, or the number of classes",
                remedy="A number inside a set is always an index, never a name",
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise BudgetError("a class name is not valid Unicode", got=repr(name)) from None
    if len(names) < 2:
        raise BudgetError("too few classes", got=len(names), expected="two or more")
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise BudgetError("duplicate class name", got=duplicate)
    return names


def _as_text(classes: Any) -> Any:
    """Convert an array of names, strings or integers, to a list of strings."""
    if isinstance(classes, np.ndarray):
        classes = classes.astype(str).tolist() if classes.dtype.kind in "iub" else classes.tolist()
    if not isinstance(classes, list):
        return classes
    return [_decoded(name) if isinstance(name, bytes) else name for name in classes]


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise LabelError("a name is not valid UTF-8", got=repr(name)) from None


def _text(label: Any) -> str:
    if isinstance(label, bytes):
        return _decoded(label)
    if not isinstance(label, str):
        raise LabelError("a label must be a string or an integer", got=repr(label))
    return label


def _from_text(labels: list[str], names: tuple[str, ...] | None) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if names is None:
        names = tuple(sorted(set(labels)))
        if len(names) == 1:
            names = (*names, f"not {names[0]}")  # a placeholder: the caller rejects a single class by name
    index = {name: c for c, name in enumerate(names)}
    unknown = next((label for label in labels if label not in index), None)
    if unknown is not None:
        raise LabelError("unknown label", got=unknown, expected=f"one of {listed(names)}")
    return np.array([index[label] for label in labels]), names


def _from_numbers(
    labels: NDArray[Any], names: tuple[str, ...] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if labels.dtype.kind not in "iubf" or not np.array_equal(labels, np.floor(labels)):
        raise LabelError("labels must be integers or names", got=f"type {labels.dtype}")
    if float(np.abs(labels.astype(np.float64)).max(initial=0)) >= 2**62:  # infinite, or too large for int64
        raise LabelError("a label is out of range", got=str(labels.max()), expected="labels from 0 to N − 1")
    codes = labels.astype(np.int64)
    if codes.min() < 0:
        raise LabelError("a label is negative", got=int(codes.min()), expected="labels from 0 to N − 1")
    largest = int(codes.max())
    if names is None:
        if largest + 1 > max(2 * len(np.unique(codes)), 10):
            raise LabelError(
                "the labels have gaps",
                got=f"{len(np.unique(codes))} distinct labels up to {largest}",
                expected="labels 0 to N − 1",
                remedy="Pass names as labels, or the names of all classes as classes=…",
            )
        names = tuple(map(str, range(max(largest + 1, 2))))
    if largest >= len(names):
        raise LabelError(
            "a label is out of range", got=largest, expected=f"0 to {len(names) - 1} for {len(names)} classes"
        )
    return codes, names


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
        if members.dtype.is_floating_point or members.dtype == torch.bool or members.dim() != 1:
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
                    "unknown class name", got=member, expected=f"one of {listed(names)}", remedy=remedy
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


ENOUGH = 20
"""The number of validation samples needed to fit a temperature, a reliability and a threshold."""


def enough(share: float, samples: int, needed: int = ENOUGH) -> float:
    """Return `share`, or `needed` if the share is smaller and `needed` is at most a quarter of the samples.

    >>> enough(0.1, 1000), enough(0.1, 150), enough(0.1, 60), enough(0, 150)
    (0.1, 20, 0.1, 0)
    """
    fraction = share and not is_whole(share, 1)
    return needed if fraction and round(share * samples) < needed <= samples / 4 else share


def stratified_parts(labels: Any, shares: Sequence[float], seed: int = 0) -> list[NDArray[np.int64]]:
    """Split samples into a remainder and one part per share, with each class in the same proportions.

    A share is a fraction below 1 or a number of samples. Returns the sorted indices of the remainder, then
    those of each part. Samples of a small class go to the remainder first.

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


def stratified(labels: Tensor, rows: int) -> Tensor:
    """Return the indices of at most `rows` samples, spread evenly over their classes, in order."""
    if len(labels) <= rows:
        return torch.arange(len(labels), device=labels.device)
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    counts = labels.unique(return_counts=True)[1]
    rank = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts).repeat_interleave(
        counts
    )
    return by_class[rank.argsort(stable=True)[:rows]].sort().values
