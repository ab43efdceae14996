"""Results by class: precision and recall of each class, and the classes that are confused most."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["class_section", "numbers_or_none"]

_MOST_PAIRS = 20
_LARGEST_MATRIX = 100
"""Classes up to which the whole confusion matrix is stored."""


def class_section(labels: Tensor, predicted: Tensor, classes: int) -> dict[str, Any]:
    """Return precision, recall and F1 of each class, the confusion matrix, and its largest errors.

    precision = TP / (TP + FP), recall = TP / (TP + FN), F1 = 2 TP / (2 TP + FP + FN)

    Undefined values (no such predictions, or no such inputs) are None. `confusion[i][j]` counts the inputs of
    class i that were predicted as j; it is left out with more than 100 classes. `confused` lists the pairs of
    different classes with the most inputs as (true class, predicted class, inputs).

    Args:
        labels: true classes (n).
        predicted: predicted classes (n).
        classes: N, the number of classes.

    >>> section = class_section(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 1]), 3)
    >>> section["recall"], section["confusion"]
    ([0.5, 1.0, 0.0], [[1, 1, 0], [0, 1, 0], [0, 1, 0]])
    """
    right = torch.bincount(labels[labels == predicted], minlength=classes).double()
    actual, chosen = (torch.bincount(values, minlength=classes).double() for values in (labels, predicted))
    pairs, counts = (classes * labels + predicted).unique(return_counts=True)
    section: dict[str, Any] = {
        "samples": actual.long().tolist(),
        "precision": numbers_or_none(right / chosen),
        "recall": numbers_or_none(right / actual),
        "f1": numbers_or_none(2 * right / (actual + chosen)),
    }
    if classes <= _LARGEST_MATRIX:
        matrix = torch.zeros(classes * classes, dtype=torch.long).index_put((pairs,), counts)
        section["confusion"] = matrix.view(classes, classes).tolist()
    wrong = pairs // classes != pairs % classes
    pairs, counts = pairs[wrong], counts[wrong]
    order = counts.argsort(descending=True, stable=True)[:_MOST_PAIRS]
    triples = torch.stack((pairs // classes, pairs % classes, counts), 1)[order]
    return {**section, "confused": triples.tolist()}


def numbers_or_none(values: Tensor) -> list[float | None]:
    """Convert to a list with None for NaN, which JSON does not support."""
    return [None if value != value else value for value in values.tolist()]
