"""`wrap`: turn a trained classifier into a random-set classifier."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.batches import inputs_alone, labelled_batches, unweighted
from randomset._core.checks import listed
from randomset.backbones.inputs import InputSpec, Standardise
from randomset.belief.budget import Budget
from randomset.errors import LabelError, RandomSetError, RandomSetWarning, ShapeError
from randomset.models.base import Classifier
from randomset.models.reliability import MIN_VALIDATION, check_max_bytes, check_reliability
from randomset.models.temperature import CalibrationReport
from randomset.models.wrapped import WrappedClassifier, classes_of

__all__ = ["check_wrapped_reliability", "wrap"]

logger = logging.getLogger(__name__)

_SHARED = 0.1
"""The share of validation samples that may also be training samples, as in data with some duplicates."""

_DISTINCT = 0.9
"""Rows of a table with few values repeat: if fewer validation samples differ, shared ones mean nothing."""

_COMPARED = 1024  # values of a sample, which tell large images apart, too


def wrap(
    classifier: Any,
    train: Any,
    val: Any = None,
    *,
    classes: Sequence[str] | None = None,
    layer: str | None = None,
    preprocess: nn.Module | None = None,
    reliability: str = "auto",
    max_bytes: int = 16 * 2**20,
    ignore_index: int = -100,
    batch_size: int = 256,
    progress: bool | None = None,
) -> WrappedClassifier:
    """Turn a trained softmax classifier into a random-set classifier, without training.

    Its probabilities, calibrated by a temperature T, are the masses of single classes. They are discounted by
    a reliability r(x), fitted to the features of the training data, and Θ gets the rest:

    m({c}) = r(x) softmax(z / T)(c),  m(Θ) = 1 − r(x)

    The most likely class stays the same. The classifier is copied, and not changed.

    Args:
        classifier: a module that ends in a linear layer and returns logits, such as a model of torchvision,
            timm or Hugging Face; a `Softmax`; or a fitted scikit-learn estimator with `predict_proba`, whose
            inputs are its features.
        train: the classifier's training data: a data set, a loader, a Lightning data module, which brings the
            validation data, or a pair of tensors; for an estimator, also arrays X and y.
        val: labelled data that the classifier was not trained on, 20 samples or more.
        classes: the names of the classes in label order; by default those of the classifier or of `train`.
        layer: the name of the last linear layer, if it is ambiguous.
        preprocess: a module applied to the inputs of a module first, such as `Standardise`.
        reliability: "auto", "neighbours" or "gaussians": see `randomset.models.Reliability`.
        max_bytes: the largest size of the bank of training samples.
        ignore_index: samples with this class index are skipped.
        batch_size: samples in a batch, for data sets.
        progress: whether to show a progress bar; None shows it on a terminal.

    >>> _ = torch.manual_seed(7)
    >>> classifier = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))  # trained, in practice
    >>> inputs = torch.randn(200, 2)
    >>> labels = classifier(inputs).argmax(1)
    >>> network = wrap(classifier, (inputs[:100], labels[:100]), (inputs[100:], labels[100:]))
    >>> bool((network.predict(inputs).labels == labels).all())
    True
    >>> bool(network.predict(torch.full((1, 2), 100.0)).mass[0, -1] > 0.9)  # Θ: unlike the training data
    True
    """
    check_wrapped_reliability(reliability)
    check_max_bytes(max_bytes)
    if hasattr(train, "train_dataloader"):
        train, val = _from_module(train, val)
    if val is None:
        raise RandomSetError(
            "no validation data given",
            expected="labelled data that the classifier was not trained on",
            remedy="Pass val=…; training data will not do, since a classifier is overconfident on samples "
            "that it has seen",
        )
    if _is_estimator(classifier):
        train, val = (_with_indices(data, classes_of(classifier)) for data in (train, val))
        inputs = torch.cat(
            [torch.as_tensor(inputs_alone(part)) for part in labelled_batches(train, batch_size)]
        )
        network = WrappedClassifier.from_estimator(classifier, classes, inputs)
    else:
        names = classes or _names(classifier) or _names(train)
        budget = None if names is None else Budget.singletons(names)
        options = {} if preprocess is None else {"preprocess": preprocess}
        network = WrappedClassifier.from_classifier(classifier, budget, layer=layer, **options)
    held_out = _Checked(val, network.num_classes, batch_size, ignore_index)
    seen = _Checked(train, network.num_classes, batch_size, ignore_index, apart_from=held_out)
    calibration = network.calibrate(held_out, ignore_index=ignore_index, progress=progress)
    _check_validation(calibration, network.num_classes)
    logger.info("%s", calibration)
    support = network.fit_reliability(
        seen, held_out, kind=reliability, max_bytes=max_bytes, ignore_index=ignore_index, progress=progress
    )
    logger.info("%s", support)
    seen.warn_of_shared()
    if network.input_spec is None and seen.spec is not None:
        spec = seen.spec.scaled() if isinstance(network.preprocess, Standardise) else seen.spec
        network.notes |= {**spec.to_notes(), "classes": list(network.classes)}
    return network


def check_wrapped_reliability(kind: str | None) -> None:
    """Raise unless this is a kind of reliability: without one, no mass would be on Θ."""
    if check_reliability(kind) == "none":
        raise RandomSetError(
            "a wrapped classifier needs a reliability",
            got=str(kind),
            expected="auto, neighbours or gaussians",
            remedy="Without one, it would be the same classifier with a temperature",
        )


def _from_module(module: Any, val: Any) -> tuple[Any, Any]:
    """Return the training and validation loaders of a Lightning data module."""
    if val is not None:
        raise RandomSetError(
            "validation data given twice", got="a data module and val", expected="only the data module"
        )
    own = getattr(type(module), "val_dataloader", None)
    if own is None or own.__module__.startswith(("lightning.", "pytorch_lightning.")):  # not overridden
        raise RandomSetError(
            "the data module has no validation data", got=type(module).__name__, expected="a val_dataloader"
        )
    module.prepare_data()
    module.setup("fit")
    return module.train_dataloader(), module.val_dataloader()


class _Checked:
    """Labelled batches whose labels are checked against a number of classes; notes the form of the inputs.

    They can be read several times, also if the data are a stream. With `apart_from`, which is read first,
    notes which of its samples these data have, too.
    """

    def __init__(
        self,
        data: Any,
        num_classes: int,
        batch_size: int,
        ignored: int,
        apart_from: _Checked | None = None,
    ) -> None:
        self.batches = labelled_batches(data, batch_size)
        if apart_from is None and isinstance(self.batches, Iterator):
            self.batches = list(self.batches)
        self.num_classes, self.ignored, self.apart_from = num_classes, ignored, apart_from
        self.spec: InputSpec | None = None
        self.samples, self.digests, self.shared = 0, set[int](), set[int]()

    def __iter__(self) -> Iterator[Any]:
        self.samples = 0
        for batch in self.batches:
            inputs, labels = unweighted(batch)
            if isinstance(labels, Tensor):
                self._check(labels)
            if isinstance(inputs, Tensor):
                self.spec = InputSpec.of(inputs) if self.spec is None else self.spec.grown(inputs)
            digests = _digests(inputs)
            self.samples += len(digests)
            if self.apart_from is None:
                self.digests.update(digests)
            else:
                self.shared.update(self.apart_from.digests.intersection(digests))
            yield batch

    def warn_of_shared(self) -> None:
        """Warn if these data share more samples with others than repeated rows would explain."""
        other = self.apart_from
        if other is None or len(other.digests) < _DISTINCT * other.samples:
            return
        if len(self.shared) > _SHARED * len(other.digests):
            warnings.warn(
                f"{len(self.shared)} of {other.samples} validation samples are also training samples: a "
                "classifier is more certain of samples that it has seen, so its confidence and the "
                "reliability of new inputs will be wrong. Pass samples that it was not trained on as val",
                RandomSetWarning,
                stacklevel=3,
            )

    def _check(self, labels: Tensor) -> None:
        if labels.dim() == 1:
            labels = labels[labels != self.ignored]
            count = int(labels.max()) + 1 if len(labels) else 0
        else:
            count = labels.shape[-1]
        if count > self.num_classes:
            raise LabelError(
                "the labels have more classes than the classifier",
                got=f"{count} or more",
                expected=f"{self.num_classes}, the outputs of its last layer",
                remedy="Wrap a classifier that was trained on these classes, or name its last layer: layer=…",
            )


def _digests(inputs: Any) -> list[int]:
    """Return a number for each of a batch of inputs, the same for equal ones; none for unusual types."""
    if isinstance(inputs, Mapping):
        columns = [_digests(part) for part in inputs.values()]
        return [hash(row) for row in zip(*columns, strict=True)] if all(columns) else []
    if not isinstance(inputs, Tensor) or not inputs.dim():
        return []
    rows = inputs.detach().reshape(len(inputs), -1)
    step = max(1, -(-rows.shape[1] // _COMPARED))
    return [hash(row.tobytes()) for row in rows[:, ::step].cpu().contiguous().view(torch.uint8).numpy()]


def _check_validation(report: CalibrationReport, num_classes: int) -> None:
    """Reject too few validation samples; warn if the classifier is worse than chance on them."""
    if report.samples < MIN_VALIDATION:
        raise RandomSetError(
            "too few validation samples to wrap a classifier",
            got=report.samples,
            expected=f"{MIN_VALIDATION} or more",
            remedy="Hold out more, on the command line with --validation",
        )
    if report.accuracy[0] < 1 / num_classes:
        warnings.warn(
            f"the classifier's accuracy on the validation data is {report.accuracy[0]:.1%}, below chance: "
            "are their labels in the order of its outputs?",
            RandomSetWarning,
            stacklevel=3,
        )


def _names(origin: Any) -> tuple[str, ...] | None:
    """Return the class names of a `Classifier`, or of a data set such as torchvision's."""
    names = getattr(origin, "known_classes" if isinstance(origin, Classifier) else "classes", None)
    named = isinstance(names, (tuple, list)) and names and all(isinstance(name, str) for name in names)
    return tuple(names) if named else None  # type: ignore[arg-type]


def _is_estimator(classifier: Any) -> bool:
    if hasattr(classifier, "predict_random_set"):
        raise RandomSetError(
            "the estimator already predicts random sets",
            got=type(classifier).__name__,
            remedy="Fit a RandomSetClassifier, which has its own reliability",
        )
    return not isinstance(classifier, nn.Module) and hasattr(classifier, "predict_proba")


def _with_indices(data: Any, classes: Any) -> Any:
    """Turn arrays (X, y) into tensors, with indices into an estimator's classes as labels."""
    if not isinstance(data, tuple) or len(data) != 2:
        return data
    if hasattr(data[0], "toarray"):
        raise ShapeError(
            "the inputs of the estimator are sparse",
            got=type(data[0]).__name__,
            expected="an array, since distances are computed from all columns",
            remedy="Pass inputs.toarray(), or reduce them first, for example with TruncatedSVD",
        )
    try:
        inputs, labels = np.array(data[0], dtype=np.float64), np.asarray(data[1])
    except (TypeError, ValueError) as error:
        raise ShapeError(
            "the inputs of the estimator must be numbers",
            got=str(error),
            expected="an array or a data frame of numbers (n × F)",
            remedy="Encode texts and categories before the estimator, not in a pipeline with it",
        ) from None
    where = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    if (wrong := classes[where] != labels).any():
        raise LabelError(
            "unknown class in the labels",
            got=str(labels[wrong][0]),
            expected=f"one of {listed(classes)}",
        )
    return torch.from_numpy(inputs), torch.from_numpy(where)
