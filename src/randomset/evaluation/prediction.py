"""Predictions for a whole data set, with its labels and remarks on how inputs were converted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from randomset._core.batches import Rows, count_of, cut_into_batches, progress_bar
from randomset._core.checks import encoded_labels, is_whole
from randomset._core.torchvision import import_lightning
from randomset.backbones.inputs import InputSpec
from randomset.data.datasets import HuggingFaceDataset, class_names, is_huggingface
from randomset.data.sources import Source, load_source
from randomset.errors import InvalidBeliefError, LabelError, RandomSetError, ShapeError, first_line
from randomset.evaluation.predictor import Feed, Prediction, Predictor, digests_of

__all__ = ["Outcome", "predictions_of", "reliability_section"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Outcome:
    """Predictions and labels of one data set.

    `digests` (n) are hashes of the inputs, `kept` holds some of the inputs with their labels, `remarks`
    describe conversions of the inputs, and `left_out` has the indices of dropped inputs.
    """

    name: str
    prediction: Prediction
    labels: Tensor | None
    digests: Tensor
    layout: InputSpec | None
    remarks: tuple[str, ...] = ()
    kept: tuple[Tensor, Tensor] | None = None
    classes: tuple[str, ...] = ()
    left_out: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.prediction)

    def apart_from(self, tested: Outcome) -> Outcome:
        """Return a copy without the inputs that also occur in the test data; raise if there are many of them.

        If test inputs contain duplicates, as tables of small integers do, matches may be coincidental.
        """
        known = set(tested.digests.tolist()) - {0}
        same = torch.tensor([digest in known for digest in self.digests.tolist()])
        count = int(same.sum())
        if not count:
            return self
        if len(known) < 0.99 * len(tested):
            remark = f"{count} of {len(self)} inputs equal a test input, but the test data contain duplicates"
            return replace(self, remarks=(*self.remarks, remark))
        if count > 0.01 * len(self):
            raise RandomSetError(
                f"{self.name} overlaps with the test data",
                got=f"{count} of {len(self)} inputs, the first in row {int(same.nonzero()[0])}",
                expected="inputs that are not in the test data",
                remedy="Use other data, or remove these inputs",
            )
        remark = f"{count} of {len(self)} inputs are in the test data and were dropped"
        return replace(
            self,
            prediction=self.prediction[~same],
            labels=None if self.labels is None else self.labels[~same],
            digests=self.digests[~same],
            remarks=(*self.remarks, remark),
            left_out=tuple(same.nonzero()[:, 0].tolist()),
        )


def predictions_of(
    predictor: Predictor,
    data: Any,
    name: str,
    *,
    labelled: bool = False,
    known: tuple[str, ...] = (),
    like: InputSpec | None = None,
    resize: bool = True,
    keep: int = 0,
    batch_size: int = 256,
    workers: int | None = None,
    devices: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Outcome:
    """Predict a whole data set.

    Data are a name or path, a `Source`, (inputs, labels), only inputs, a torch or Hugging Face data set, or
    an iterable of batches such as a data loader. For sources, pixels are scaled to [0, 1] and labels are
    encoded by the `known` classes. Other data are passed unchanged, except for conversions to the layout
    `like`. The result keeps `keep` of the inputs.
    """
    if not is_whole(batch_size, 1) or not is_whole(workers or 0, 0) or not is_whole(devices, 1):
        raise RandomSetError(
            "batch_size, workers or devices is out of range",
            got=f"batch_size={batch_size}, workers={workers}, devices={devices}",
        )
    if isinstance(data, (str, Path)):
        data = load_source(data, "test", labelled=labelled, progress=progress)
    classes: tuple[str, ...] = ()
    feed = Feed(like=like, resize=resize)
    remarks: tuple[str, ...] = ()
    if isinstance(data, Source):
        data = data.aligned(known) if labelled and known else data
        feed.pixels, remarks, classes = data.kind == "images", data.remarks, data.classes
        data = (data.inputs, data.labels) if labelled else data.inputs
    own = class_names(data)
    if is_huggingface(data):
        data, feed.pixels = HuggingFaceDataset(data), True
    if like is not None:
        data = (like.by_name(data[0]), *data[1:]) if isinstance(data, tuple) and data else like.by_name(data)
    batches, total, samples = cut_into_batches(data, batch_size, workers, name)
    if devices > 1:
        parts = _on_devices(predictor, batches, feed, devices, name)
        layout, sample = _peek(batches, feed), None
    else:
        keeping = _chosen(samples, keep, seed)
        parts, layout, sample = _one_by_one(
            predictor, batches, feed, total, name, keeping, labelled, progress
        )
    prediction = Prediction.concatenate([part[0] for part in parts])
    labels = None
    if labelled:
        labels, more = _joined([part[1] for part in parts], len(prediction), name, own, known)
        remarks, classes = (*remarks, *more), classes or own
    kept = None if sample is None or labels is None else (sample[0], labels[sample[1]])
    digests = torch.cat([part[2] for part in parts])
    return Outcome(name, prediction, labels, digests, layout, (*remarks, *feed.remarks), kept, classes)


_Part = tuple[Prediction, Any, Tensor]


def _one_by_one(
    predictor: Predictor,
    batches: Iterable[Any],
    feed: Feed,
    total: int | None,
    name: str,
    keeping: Tensor,
    labelled: bool,
    progress: bool | None,
) -> tuple[list[_Part], InputSpec | None, tuple[Tensor, Tensor] | None]:
    """Predict batch by batch; also return the layout, and the kept inputs with their indices."""
    parts: list[_Part] = []
    kept: list[tuple[Tensor, Tensor]] = []
    layout, seen = None, 0
    with progress_bar(f"predicting {name}", total, progress) as advance:
        for number, batch in enumerate(batches):
            inputs, labels = feed(batch)
            prediction = _predicted(predictor, inputs, name, number, seen)
            parts.append((prediction, labels if labelled else None, digests_of(inputs)))
            if isinstance(inputs, Tensor):
                layout = InputSpec.of(inputs) if layout is None else layout.grown(inputs)
                here = keeping[(keeping >= seen) & (keeping < seen + len(inputs))]
                if labelled and len(here):
                    kept.append((inputs[here - seen], here))
            seen += len(prediction)
            advance(1)
    if not parts:
        raise ShapeError("no data to evaluate", got=f"no batches of {name}", expected="at least one batch")
    if not kept:
        return parts, layout, None
    return parts, layout, (torch.cat([x for x, _ in kept]), torch.cat([y for _, y in kept]))


def _predicted(predictor: Predictor, inputs: Any, name: str, number: int, seen: int) -> Prediction:
    try:
        prediction = predictor(inputs)
    except torch.OutOfMemoryError:
        raise
    except InvalidBeliefError as error:
        if error.sample is None:
            raise
        raise InvalidBeliefError(
            f"the model returned invalid probabilities on {name}",
            got=f"{error.got}, input {seen + error.sample} (batch {number}, index {error.sample})",
            expected="finite numbers",
            remedy="Apply softmax to logits, check that input for NaN, or check whether training diverged",
        ) from None
    except (RuntimeError, ShapeError) as error:  # also torch's messages on wrong shapes or dtypes
        shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else type(inputs).__name__
        raise ShapeError(
            f"the model failed on the inputs of {name}",
            got=f"samples of shape {shape}: {first_line(error)}",
        ) from error
    if len(prediction) != count_of(inputs):
        raise ShapeError(
            f"the number of predictions does not match the number of inputs of {name}",
            got=f"{len(prediction)} for {count_of(inputs)}",
        )
    return prediction


def _joined(
    labels: list[Any], count: int, name: str, own: tuple[str, ...], known: tuple[str, ...]
) -> tuple[Tensor, list[str]]:
    """Concatenate labels, encoded by the known classes; return a remark if class names do not match."""
    if any(part is None for part in labels):
        raise LabelError(f"{name} has no labels", expected="(inputs, labels) in every batch")
    arrays = [np.asarray(part) for part in labels]
    if arrays[0].dtype.kind in "OUS":
        encoded, _ = encoded_labels(np.concatenate(arrays), count, known or own or None, at_least=1)
        return torch.from_numpy(encoded), []
    codes = torch.cat([torch.as_tensor(array) for array in arrays])
    if codes.dim() == 2 and codes.dtype == torch.bool and bool((codes.sum(1) == 1).all()):
        codes = codes.int().argmax(1)  # set-valued labels with one class each
    if codes.dim() != 1 or len(codes) != count or codes.is_floating_point():
        raise LabelError(
            f"the labels of {name} are not class indices",
            got=f"{codes.dtype} of shape {tuple(codes.shape)} for {count} inputs",
            expected="one class index per input",
            remedy="Set-valued labels cannot be evaluated: test on data with a single label per input "
            "(--test SOURCE)"
            if codes.dim() > 1
            else "",
        )
    if not own or not known or own == known:
        return codes.long(), []
    if all(label in known for label in own):
        order = torch.tensor([known.index(label) for label in own])
        if not 0 <= int(codes.min()) <= int(codes.max()) < len(own):
            raise LabelError(f"label of {name} out of range", got=int(codes.max()))
        return order[codes.long()], []
    if len(own) == len(known):
        return codes.long(), ["its class names differ from the model's; classes are matched by order"]
    raise LabelError(
        f"the classes of {name} do not match the model's",
        got=", ".join(own[:5]),
        expected=", ".join(known[:5]),
    )


def _chosen(samples: int | None, keep: int, seed: int) -> Tensor:
    """Choose the indices of the inputs to keep: a random sample, or the first ones of a stream."""
    if samples is None or keep >= samples:
        return torch.arange(keep)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    return order[:keep].sort().values


def _peek(batches: Any, feed: Feed) -> InputSpec | None:
    inputs, _ = feed(next(iter(batches)))
    return InputSpec.of(inputs) if isinstance(inputs, Tensor) else None


def _on_devices(predictor: Predictor, batches: Any, feed: Feed, devices: int, name: str) -> list[_Part]:
    import_lightning()
    from randomset._core.distributed import in_processes

    if isinstance(batches, Rows) and all(isinstance(part, Tensor) for part in batches.parts):
        batches = DataLoader(TensorDataset(*batches.parts), batch_size=batches.size)
    if not isinstance(batches, DataLoader):
        raise RandomSetError(
            f"cannot distribute {name} over devices",
            got=type(batches).__name__,
            expected="tensors, a data set or a data loader",
        )
    # The network of the predictor, so that it moves to the device of each process.
    network = predictor.model if isinstance(predictor.model, nn.Module) else nn.Identity()
    function = partial(_named_prediction, predictor, feed)
    named = in_processes(function, network, batches, devices, enable_progress_bar=False)
    scores = {key[7:]: value for key, value in named.items() if key.startswith("scores.")}
    bounds = [named.get(side) for side in ("lower", "upper", "negative")]
    return [(Prediction(named["probabilities"], scores, *bounds), named.get("labels"), named["digests"])]


def _named_prediction(predictor: Predictor, feed: Feed, _: nn.Module, batch: Any) -> dict[str, Tensor]:
    """Return the content of a batch's prediction as named tensors."""
    inputs, labels = feed(batch)
    prediction = predictor(inputs)
    named = {"probabilities": prediction.probabilities, "digests": digests_of(inputs)}
    named |= {f"scores.{name}": score for name, score in prediction.scores.items()}
    optional = {name: getattr(prediction, name) for name in ("lower", "upper", "negative")}
    named |= {name: values for name, values in optional.items() if values is not None}
    if labels is not None:
        labels = labels.cpu() if isinstance(labels, Tensor) else np.asarray(labels)
        named["labels"] = torch.as_tensor(labels)
    return {name: tensor.contiguous() for name, tensor in named.items()}


def reliability_section(tested: Outcome, others: dict[str, Outcome], familiar_from: float) -> dict[str, Any]:
    """Distribution of the reliability of test and unknown inputs; empty for a model without one."""
    section = {}
    for outcome in (tested, *others.values()):
        if (reliability := outcome.prediction.reliability) is not None:
            values = reliability.double().numpy()
            quantiles = np.quantile(values, _QUANTILES).tolist()
            section[outcome.name] = {
                "samples": len(outcome),
                "mean": float(values.mean()),
                "quantiles": {f"{q:.0%}": value for q, value in zip(_QUANTILES, quantiles, strict=True)},
                "familiar": float((values >= familiar_from).mean()),
                "familiar_from": familiar_from,
            }
    return section
