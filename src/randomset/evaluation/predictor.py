"""From any model and any data to predictions: predictors, which call a model, and batches of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from randomset._core.batches import (
    as_floating,
    call_with,
    evaluating,
    feature_tensor,
    moved,
    split_batch,
    usual_workers,
)
from randomset.backbones.inputs import InputSpec
from randomset.belief.random_set import RandomSet
from randomset.data.images import pixels_from_pil
from randomset.data.sources import HuggingFaceDataset, is_huggingface
from randomset.data.splits import sample_digests
from randomset.errors import RandomSetError, ShapeError
from randomset.models.base import Classifier
from randomset.models.prediction import Prediction

__all__ = [
    "Feed",
    "Prediction",
    "Predictor",
    "Rows",
    "as_predictor",
    "batches_of",
    "collated",
    "count_of",
    "digests_of",
    "random_set_predictor",
    "softmax_predictor",
]


@dataclass(frozen=True)
class Predictor:
    """Calls a model on a batch; a class rather than a closure, so that it can be sent to other processes.

    >>> predict = Predictor(lambda x: [[0.9, 0.1]] * len(x))
    >>> predict([1, 2]).labels
    tensor([0, 0])
    """

    model: Any
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `Classifier.predict`."""

    def __call__(self, inputs: Any) -> Prediction:
        """Predict one batch; the prediction is on the CPU."""
        if isinstance(self.model, Classifier):
            return as_prediction(self.model.predict(inputs, batch_size=2**30, progress=False, **self.options))
        if isinstance(self.model, nn.Module):
            return _from_logits(self.model, inputs)
        return as_prediction(_function(self.model)(inputs))


def as_prediction(output: Any) -> Prediction:
    """Convert the output of a model to a `Prediction` on the CPU.

    Outputs are a `Prediction`, a `RandomSet`, probabilities (n × N), or (probabilities, scores by name).
    """
    if isinstance(output, (Prediction, RandomSet)):
        return Prediction.of(output)
    p, scores = output if isinstance(output, tuple) else (output, {})
    return Prediction(_numbers(p), {name: _numbers(score) for name, score in scores.items()})


@torch.no_grad()
def _from_logits(model: nn.Module, inputs: Any) -> Prediction:
    parameter = next(model.parameters(), torch.zeros(()))
    with evaluating(model):
        logits = feature_tensor(
            call_with(model, moved(as_floating(inputs, parameter.dtype), parameter.device))
        )
    return Prediction(logits.float().softmax(1).cpu())


def _function(model: Any) -> Callable[[Any], Any]:
    """Return the function that predicts: an estimator's method, or the model itself."""
    for name in ("predict_random_set", "predict_proba"):  # scikit-learn's estimators, and ours
        if hasattr(model, name):
            return getattr(model, name)
    return model


def _numbers(values: Any) -> Tensor:
    """Convert to a tensor on the CPU, without gradients, in a precision that NumPy has."""
    tensor = values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    if not tensor.is_floating_point():
        return tensor.double()
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def random_set_predictor(network: Classifier, *, calibrated: bool = True) -> Predictor:
    """Return a predictor for a random-set network, with or without its calibration."""
    return Predictor(network, {"calibrated": calibrated})


def softmax_predictor(model: nn.Module) -> Predictor:
    """Return a predictor for a module that returns logits.

    >>> predict = softmax_predictor(nn.Linear(4, 3))
    >>> sorted(predict(torch.randn(5, 4)).scores)
    ['1 - maximum', 'entropy']
    """
    if not isinstance(model, nn.Module):
        raise RandomSetError(
            "model must be a torch.nn.Module", got=type(model).__name__, remedy="as_predictor takes functions"
        )
    return Predictor(model)


def as_predictor(model: Any) -> Predictor:
    """Return a predictor for a classifier, a module that returns logits, an estimator, or any function.

    A function takes inputs and returns probabilities, or (probabilities, scores by name).

    >>> predict = as_predictor(lambda x: [[0.9, 0.1]] * len(x))
    >>> predict([1, 2]).labels
    tensor([0, 0])
    """
    if isinstance(model, Predictor):
        return model
    if not callable(_function(model)):
        raise RandomSetError(
            "cannot evaluate this model",
            got=type(model).__name__,
            expected="a classifier, a module that returns logits, or a function from inputs to probabilities",
        )
    return Predictor(model)


# -- inputs ----------------------------------------------------------------------------------------


@dataclass
class Feed:
    """Converts batches to model inputs: scales the pixels of sources to [0, 1] and fits a specification."""

    pixels: bool = False
    like: InputSpec | None = None
    resize: bool = True
    remarks: list[str] = field(default_factory=list)

    def __call__(self, batch: Any) -> tuple[Any, Any]:
        """Return the inputs and labels of a batch."""
        inputs, labels = (batch, None) if _is_texts(batch) else split_batch(batch)
        if hasattr(inputs, "__array__") and not isinstance(inputs, Tensor):
            inputs = torch.as_tensor(np.asarray(inputs))
        if not isinstance(inputs, Tensor):
            return inputs, labels
        if self.like is not None:
            inputs, done = self.like.fit(inputs, resize=self.resize)
            known = [*self.remarks, *(["divided by 255"] if self.pixels else [])]
            self.remarks += [step for step in done if step not in known]
        elif self.pixels and inputs.dtype == torch.uint8:
            inputs = inputs.float() / 255
        return inputs, labels


def batches_of(
    data: Any, size: int, workers: int | None, name: str
) -> tuple[Iterable[Any], int | None, int | None]:
    """Split data into batches; return them with the number of batches and of samples, if known."""
    if is_huggingface(data):
        data = HuggingFaceDataset(data)
    if isinstance(data, Dataset) and not isinstance(data, TensorDataset):
        readers = usual_workers(data) if workers is None else workers
        data = DataLoader(data, batch_size=size, num_workers=readers, collate_fn=collated)
    if isinstance(data, DataLoader):
        try:
            plain = data.batch_size is not None
            return data, len(data), len(data.sampler) if plain else None  # type: ignore[arg-type]
        except TypeError:  # a stream
            return data, None, None
    if isinstance(data, TensorDataset):
        if len(data.tensors) > 2:
            raise RandomSetError(
                f"{name} has too many tensors",
                got=f"{len(data.tensors)} tensors",
                expected="inputs and labels",
            )
        data = tuple(data.tensors[:2]) if len(data.tensors) > 1 else data.tensors[0]
    parts = data if isinstance(data, tuple) else (data,)
    if isinstance(data, (tuple, Tensor)) or hasattr(data, "__array__") or _is_texts(data):
        if len({count_of(part) for part in parts}) != 1 or not count_of(parts[0]):
            raise ShapeError(
                f"inputs and labels of {name} have different lengths, or are empty",
                got=" and ".join(str(count_of(part)) for part in parts),
                expected="one label per input, at least one input",
            )
        rows = Rows(tuple(torch.as_tensor(p) if hasattr(p, "__array__") else p for p in parts), size)
        return rows, len(rows), count_of(parts[0])
    if not isinstance(data, Iterable) or isinstance(data, Mapping):
        raise RandomSetError(
            f"unsupported type of data for {name}",
            got=type(data).__name__,
            expected="a name or path, (inputs, labels), a data set, or a data loader",
        )
    return data, len(data) if isinstance(data, Sized) else None, None


def _is_texts(data: Any) -> bool:
    return isinstance(data, list) and bool(data) and isinstance(data[0], str)


@dataclass(frozen=True)
class Rows:
    """Batches of inputs, and labels if given, as slices."""

    parts: tuple[Any, ...]
    size: int

    def __len__(self) -> int:
        return -(-count_of(self.parts[0]) // self.size)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, count_of(self.parts[0]), self.size):
            rows = slice(start, start + self.size)
            cut = tuple(
                {key: value[rows] for key, value in part.items()} if isinstance(part, Mapping) else part[rows]
                for part in self.parts
            )
            yield cut if len(cut) > 1 else cut[0]


def count_of(inputs: Any) -> int:
    """Return the number of inputs; for a mapping, that of its first entry."""
    return len(next(iter(inputs.values()))) if isinstance(inputs, Mapping) else len(inputs)


def collated(rows: list[Any]) -> Any:
    """Collate rows to a batch; PIL images become pixels in [0, 1]."""

    def plain(value: Any) -> Any:
        if type(value).__module__.startswith("PIL."):
            return pixels_from_pil(value).float() / 255
        return value

    try:
        return default_collate(
            [tuple(map(plain, row)) if isinstance(row, (tuple, list)) else plain(row) for row in rows]
        )
    except RuntimeError as error:
        raise ShapeError(
            "cannot collate inputs of different shapes",
            got=str(error).splitlines()[0],
            remedy="Resize them to the same shape in the data set",
        ) from None


def digests_of(inputs: Any) -> Tensor:
    """Return a 64-bit digest of each input (n), 0 for a constant one: see `sample_digests`.

    >>> pixels = torch.tensor([[0, 255], [7, 7]], dtype=torch.uint8)
    >>> bool((digests_of(pixels) == digests_of(pixels.float() / 255)).all())
    True
    """
    if isinstance(inputs, Mapping):
        return torch.stack([digests_of(value) for value in inputs.values()]).sum(0)
    rows = inputs.reshape(len(inputs), -1) if isinstance(inputs, Tensor) else map(str, inputs)
    numbers = [int(digest or "0", 16) for digest in sample_digests(rows)]
    return torch.from_numpy(np.array(numbers, np.uint64).view(np.int64))
