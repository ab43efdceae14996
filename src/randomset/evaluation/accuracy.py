"""Accuracy and proper scoring rules."""

from __future__ import annotations

import torch
from torch import Tensor

from randomset.errors import LabelError

__all__ = ["balanced_accuracy", "brier_score", "check_labels", "negative_log_likelihood", "top_accuracy"]


def top_accuracy(probabilities: Tensor, labels: Tensor, k: int = 1) -> float:
    """Fraction of samples whose label is among the k most likely classes.

    >>> top_accuracy(torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]), torch.tensor([1, 2]), k=2)
    1.0
    """
    check_labels(probabilities, labels)
    if k == 1:  # argmax breaks ties in the same way as everywhere else
        return (probabilities.argmax(1) == labels).double().mean().item()
    best = probabilities.topk(min(k, probabilities.shape[1]), dim=1).indices
    return (best == labels[:, None]).any(1).double().mean().item()


def balanced_accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Mean recall over the classes that occur.

    >>> balanced_accuracy(torch.tensor([[0.9, 0.1]] * 4), torch.tensor([0, 0, 0, 1]))
    0.5
    """
    check_labels(probabilities, labels)
    n = probabilities.shape[1]
    right = (probabilities.argmax(1) == labels).double()
    count = torch.bincount(labels, minlength=n)
    hits = torch.zeros(n, dtype=torch.double).index_add(0, labels, right)
    return (hits[count > 0] / count[count > 0]).mean().item()


def negative_log_likelihood(probabilities: Tensor, labels: Tensor) -> float:
    """Mean of −ln p(label), in nats; probabilities below 1e-12 count as 1e-12.

    >>> round(negative_log_likelihood(torch.tensor([[0.5, 0.5]]), torch.tensor([0])), 4)
    0.6931
    """
    check_labels(probabilities, labels)
    hit = probabilities.double().gather(1, labels[:, None])
    return -hit.clamp_min(1e-12).log().mean().item()


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    """Mean of Σ_c (p(c) − [c is the label])², from 0 to 2.

    >>> round(brier_score(torch.tensor([[0.8, 0.2]]), torch.tensor([0])), 4)
    0.08
    """
    check_labels(probabilities, labels)
    target = torch.nn.functional.one_hot(labels, probabilities.shape[1])
    return ((probabilities.double() - target) ** 2).sum(1).mean().item()


def check_labels(probabilities: Tensor, labels: Tensor) -> None:
    """Raise LabelError if the labels do not match the predictions."""
    n = probabilities.shape[1]
    if labels.shape != probabilities.shape[:1] or labels.is_floating_point():
        raise LabelError(
            "labels do not match the predictions",
            got=f"{labels.dtype} {tuple(labels.shape)} for {tuple(probabilities.shape)}",
            expected="one class index per prediction",
        )
    if not len(labels):
        raise LabelError("no predictions to evaluate", got="no predictions")
    if not 0 <= int(labels.min()) <= int(labels.max()) < n:
        place = int(((labels < 0) | (labels >= n)).nonzero()[0])
        raise LabelError(
            "label out of range", got=f"{int(labels[place])} at row {place}", expected=f"0 to {n - 1}"
        )
