"""Imbalanced classes: weights in the loss, balanced sampling, and a warning about rare classes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.checks import is_number, listed
from randomset.errors import LabelError, RandomSetError, RandomSetWarning
from randomset.training.loaders import EpochLoader, labels_of

if TYPE_CHECKING:
    from randomset.training.recipe import Recipe

__all__ = [
    "ClassWeight",
    "balanced_for",
    "balanced_weights",
    "check_loss",
    "checked_class_weight",
    "class_counts",
    "class_weight_by_index",
    "counted",
    "warn_of_rare_classes",
    "weights_by_class",
]

ClassWeight: TypeAlias = "str | Mapping[str, float] | Sequence[float] | Sequence[tuple[str, float]] | None"
"""None, "balanced", weights by class name, or one weight for each class."""

_RARE = 10
"""Classes with fewer training samples are rare: hardly any is left to validate or calibrate on."""

_USUAL = 20
"""If classes have fewer samples on average, users need not be told that some are rare."""


def checked_class_weight(value: ClassWeight) -> ClassWeight:
    """Return class weights in their stored form: None, "balanced", (name, weight) pairs, or numbers.

    >>> checked_class_weight({"cat": 2, "dog": 1})
    (('cat', 2.0), ('dog', 1.0))
    """
    if value is None or (isinstance(value, str) and value == "balanced"):
        return value
    if isinstance(value, (Tensor, np.ndarray)):
        value = value.tolist()
    listed = isinstance(value, (Mapping, Sequence)) and not isinstance(value, str)
    items: list[Any] = list(value.items() if isinstance(value, Mapping) else value) if listed else []
    named = any(isinstance(item, (tuple, list)) for item in items)
    if not items or (named and not all(map(_is_pair, items))):
        raise RandomSetError(
            "invalid class_weight",
            got=repr(value),
            expected='"balanced", a mapping of class names to weights, or a list of weights',
        )
    for item in items:
        name, weight = item if named else ("", item)
        if not is_number(weight):
            raise RandomSetError(
                "a class weight must be finite and not negative",
                got=f"{name}: {weight}" if name else repr(weight),
            )
    if named:
        pairs = tuple((name, float(weight)) for name, weight in items)
        if len({name for name, _ in pairs}) < len(pairs):
            raise RandomSetError("duplicate class in class_weight", got=", ".join(name for name, _ in pairs))
        return pairs
    numbers = tuple(float(weight) for weight in items)
    if not any(numbers):
        raise RandomSetError("all class weights are zero", got=repr(numbers))
    return numbers


def _is_pair(item: Any) -> bool:
    return isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str)


def class_weight_by_index(value: ClassWeight, classes: Sequence[str]) -> ClassWeight:
    """Return class weights with names replaced by one weight for each class; classes not named weigh 1."""
    value = checked_class_weight(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value[0], float):  # type: ignore[index]
        if len(value) != len(classes):
            raise RandomSetError(
                "class_weight has the wrong number of weights", got=len(value), expected=f"{len(classes)}"
            )
        return value
    given: dict[str, float] = dict(value)  # type: ignore[arg-type]
    if unknown := [name for name in given if name not in classes]:
        raise LabelError(
            "unknown class in class_weight", got=unknown[0], expected=f"one of {listed(classes)}"
        )
    return checked_class_weight([given.get(name, 1.0) for name in classes])


def class_counts(labels: Tensor, num_classes: int) -> Tensor:
    """Return the number of samples of each class (N); a set-valued label is shared among its classes.

    Negative labels are ignored.
    """
    if labels.dim() == 1:
        return labels[labels >= 0].long().bincount(minlength=num_classes).double()
    return (labels.double() / labels.double().sum(1, keepdim=True).clamp_min(1e-12)).sum(0)


def balanced_for(plan: Recipe, network: nn.Module, loss: nn.Module, train: Any, loader: Any) -> Tensor | None:
    """Balance the loader if the recipe says so, and return the weights of the classes in the loss, if any."""
    check_loss(plan, loss)
    labels = labels_of(loader if isinstance(loader, EpochLoader) else train)
    number, given = getattr(network, "num_classes", None), plan.class_weight
    if not isinstance(number, int) and isinstance(given, tuple) and isinstance(given[0], float):
        number = len(given)
    labels, counts = counted(labels, number, getattr(loss, "ignore_index", -100))
    if counts is not None:
        number = len(counts)
    names = getattr(network, "classes", None)
    classes = tuple(map(str, range(number or 0))) if names is None else tuple(names)
    if counts is not None:
        for option in ("sampling", "class_weight"):
            if getattr(plan, option) == "balanced":
                _check_present(counts, classes, option)
        warn_of_rare_classes(counts, classes)
    if plan.sampling == "balanced":
        several = labels is not None and labels.dim() > 1
        if not isinstance(loader, EpochLoader) or not loader.shuffle or counts is None or several:
            raise RandomSetError(
                "balanced sampling needs a data set with one class per sample",
                got="set-valued labels" if several else type(train).__name__,
                expected="a TensorDataset, a data set with `targets`, or a shuffling DataLoader of one",
                remedy='class_weight="balanced" takes set-valued labels' if several else "",
            )
        loader.balanced = labels
    weights: Any = class_weight_by_index(given, classes)
    if weights != "balanced":
        return None if weights is None else torch.tensor(weights)
    if counts is None:
        raise RandomSetError(
            "the classes of the training data cannot be counted without reading all inputs",
            got=type(train).__name__,
            expected="a TensorDataset, a data set with `targets`, or a DataLoader of one",
            remedy="Pass weights: class_weight=[…], one for each class",
        )
    return balanced_weights(counts)


def balanced_weights(counts: Tensor) -> Tensor:
    """Return weights (N) inversely proportional to the numbers of samples (N); their mean over samples is 1.

    >>> balanced_weights(torch.tensor([30, 10]))
    tensor([0.6667, 2.0000])
    """
    return (counts.sum() / (len(counts) * counts)).float()


def weights_by_class(labels: Any, weights: Tensor) -> Tensor:
    """Return the weight of the class of each sample; a set-valued label has the mean of its classes.

    >>> weights_by_class(torch.tensor([1, 0]), torch.tensor([0.5, 2.0]))
    tensor([2.0000, 0.5000])
    """
    alone = isinstance(labels, Tensor) and labels.dim() == 1
    if not alone and (not isinstance(labels, Tensor) or labels.shape[1:] != weights.shape):
        raise LabelError(
            "class_weight requires class labels",
            got=f"labels of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else labels,
            expected=f"class indices, or one column for each of the {len(weights)} classes",
        )
    if alone:
        return weights[labels.long().clamp(0, len(weights) - 1)]  # the loss reports invalid labels
    # No product of matrices: autocast rounds them.
    return (labels * weights).sum(1) / labels.sum(1).clamp_min(1e-12)


def check_loss(plan: Recipe, loss: nn.Module) -> None:
    """Raise if the loss does not accept the sample weights that the recipe needs, or has class weights."""
    needs = (
        "class_weight" if plan.class_weight is not None else "mixup" if "mixup" in plan.augmentations else ""
    )
    parameters = inspect.signature(loss.forward).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if needs and len(positional) < 3 and not any(p.kind == p.VAR_POSITIONAL for p in parameters):
        raise RandomSetError(
            f"this loss does not accept sample weights, which {needs} requires",
            got=type(loss).__name__,
            expected="a loss that is called with (outputs, labels, weight)",
            remedy="Instead of nn.CrossEntropyLoss, use randomset.models.CrossEntropy",
        )
    if plan.class_weight is not None and getattr(loss, "class_weights", None) is not None:
        raise RandomSetError("class weights given twice", got="class_weight, and a loss with class_weights")


def counted(labels: Any, number: Any, ignored: int = -100) -> tuple[Tensor | None, Tensor | None]:
    """Return labels, with −1 for ignored ones, and the number of samples of each class; None if unknown."""
    if not isinstance(labels, Tensor) or labels.dim() not in (1, 2) or not labels.numel():
        return None, None
    if labels.dim() == 1:
        if labels.is_floating_point() or labels.dtype == torch.bool:
            return None, None
        labels = labels.where(labels != ignored, -1)
        number = number if isinstance(number, int) else int(labels.max()) + 1
        return (labels, class_counts(labels, number)) if int(labels.max()) < number else (None, None)
    number = number if isinstance(number, int) else labels.shape[1]
    return (labels, class_counts(labels, number)) if labels.shape[1] == number else (labels, None)


def _check_present(counts: Tensor, classes: Sequence[str], option: str) -> None:
    missing = [name for name, number in zip(classes, counts.tolist(), strict=True) if not number]
    if missing:
        raise LabelError(
            f'{option}="balanced" needs training samples of every class',
            got=f"none of {listed(missing, 5)}",
            remedy="Add samples of these classes, or leave them out of the classes",
        )


def warn_of_rare_classes(counts: Tensor, classes: Sequence[str]) -> None:
    """Warn about classes with fewer than 10 training samples, unless most classes have few."""
    rare = [
        (round(number), name) for name, number in zip(classes, counts.tolist(), strict=True) if number < _RARE
    ]
    if not rare or counts.mean() < _USUAL:
        return
    shown = listed([f"{name} ({number})" for number, name in sorted(rare)], 5)
    have = "has" if len(rare) == 1 else "have"
    warnings.warn(
        f"{len(rare)} of {len(counts)} classes {have} fewer than {_RARE} training samples: {shown}. "
        "They are likely to be predicted poorly: collect more samples, or merge classes; "
        'class_weight="balanced" or sampling="balanced" gives rare classes more weight',
        RandomSetWarning,
        stacklevel=5,
    )
