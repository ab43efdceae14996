"""Labels and names of classes as users have them: whole numbers or text."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from randomset.errors import BudgetError, LabelError

__all__ = ["checked_classes", "encoded_labels"]


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


def checked_classes(classes: SupportsIndex | Iterable[str]) -> tuple[str, ...]:
    """Return the names of the classes; a number N stands for the names 0 to N − 1."""
    if isinstance(classes, (AbstractSet, Mapping)):
        raise BudgetError(
            "the classes come without an order",
            got=type(classes).__name__,
            expected="names in label order, in a list or tuple",
        )
    if isinstance(classes, Iterable):
        names = tuple(classes)
    else:
        try:
            names = tuple(str(c) for c in range(operator.index(classes)))
        except TypeError:
            raise BudgetError("the classes are neither names nor their number", got=repr(classes)) from None
    for name in names:
        if not isinstance(name, str):
            raise BudgetError(
                "a class name is not text",
                got=name,
                expected="from_sets(sets, classes) with names as text, or the number of classes",
                remedy="A number inside a set always means a position, never a name",
            )
        if not name.isprintable() and not name.isascii():
            _check_encodable(name)
    if len(names) < 2:
        raise BudgetError(
            "there is nothing to classify", got=f"{len(names)} class(es)", expected="two or more"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BudgetError("two classes have the same name", got=twice)
    return names


def _check_encodable(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BudgetError("a class name is not valid Unicode", got=repr(name)) from None


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
