"""One pass of a model over a data set: predictions, labels, and what had to be done to the inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from randomset._core.checks import is_whole
from randomset._core.labels import encoded_labels
from randomset._core.progress import progress_bar
from randomset._core.torchvision import import_torchvision_first
from randomset.data.rows import is_hub, own_classes
from randomset.data.sources import Source, load_source
from randomset.errors import (
    InvalidBeliefError,
    LabelError,
    MissingPackageError,
    RandomSetError,
    ShapeError,
)
from randomset.evaluation.inputs import Feed, Layout, Rows, batches_of, count_of, digests_of
from randomset.evaluation.predictor import Prediction, Predictor

__all__ = ["Outcome", "predictions_of"]


@dataclass(frozen=True)
class Outcome:
    """What one pass over a data set gave.

    `digests` (n × 2) tell inputs apart, `kept` are some of the inputs themselves with their labels, `remarks`
    say what was done to the inputs, `left_out` are the places of those that were left out.
    """

    name: str
    prediction: Prediction
    labels: Tensor | None
    digests: Tensor
    layout: Layout | None
    remarks: tuple[str, ...] = ()
    kept: tuple[Tensor, Tensor] | None = None
    classes: tuple[str, ...] = ()
    left_out: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.prediction)

    def without(self, out: Tensor, remark: str) -> Outcome:
        """Leave out inputs (a mask of them), and say why."""
        return replace(
            self,
            prediction=self.prediction[~out],
            labels=None if self.labels is None else self.labels[~out],
            digests=self.digests[~out],
            remarks=(*self.remarks, remark),
            left_out=tuple(out.nonzero()[:, 0].tolist()),
        )


def predictions_of(
    predictor: Predictor,
    data: Any,
    name: str,
    *,
    labelled: bool = False,
    known: tuple[str, ...] = (),
    like: Layout | None = None,
    keep: int = 0,
    batch_size: int = 256,
    workers: int | None = None,
    devices: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Outcome:
    """Put a data set through a model once.

    Data are a name or path, a `Source`, (inputs, labels), inputs alone, a data set of torch or of Hugging
    Face, or batches such as a data loader's. Of sources, pixels are floats in [0, 1] and labels are numbered
    by the `known` classes; anything else reaches the model as it is, but for what `like`, another data set's
    layout, asks for. `keep` inputs are remembered.
    """
    if not is_whole(batch_size, 1) or not is_whole(workers or 0, 0) or not is_whole(devices, 1):
        raise RandomSetError(
            "batch_size, workers or devices is out of range", got=f"{batch_size}, {workers}, {devices}"
        )
    if isinstance(data, (str, Path)):
        data = load_source(data, "test", labelled=labelled, progress=progress)
    classes: tuple[str, ...] = ()
    feed = Feed(like=like)
    remarks: tuple[str, ...] = ()
    if isinstance(data, Source):
        data = data.aligned(known) if labelled and known else data
        feed.pixels, remarks, classes = data.kind == "images", data.remarks, data.classes
        data = (data.inputs, data.labels) if labelled else data.inputs
    feed.pixels = feed.pixels or is_hub(data)
    own = own_classes(data)
    batches, total, samples = batches_of(data, batch_size, workers, name)
    if devices > 1:
        parts = _on_devices(predictor, batches, feed, devices, name)
        layout, some = _peek(batches, feed), None
    else:
        keeping = _chosen(samples, keep, seed)
        parts, layout, some = _in_turn(predictor, batches, feed, total, name, keeping, labelled, progress)
    prediction = Prediction.concatenate([part[0] for part in parts])
    labels = None
    if labelled:
        labels, said = _joined([part[1] for part in parts], len(prediction), name, own, known)
        remarks, classes = (*remarks, *said), classes or own
    kept = None if some is None or labels is None else (some[0], labels[some[1]])
    digests = torch.cat([part[2] for part in parts])
    return Outcome(name, prediction, labels, digests, layout, (*remarks, *feed.remarks), kept, classes)


_Part = tuple[Prediction, Any, Tensor]


def _in_turn(
    predictor: Predictor,
    batches: Iterable[Any],
    feed: Feed,
    total: int | None,
    name: str,
    keeping: Tensor | int,
    labelled: bool,
    progress: bool | None,
) -> tuple[list[_Part], Layout | None, tuple[Tensor, Tensor] | None]:
    """Predict batch by batch; the last that is returned are inputs to keep, and their places."""
    parts: list[_Part] = []
    kept: list[tuple[Tensor, Tensor]] = []
    layout, seen = None, 0
    with progress_bar(f"predicting {name}", total, progress) as advance:
        for number, batch in enumerate(batches):
            inputs, labels = feed(batch)
            prediction = _predicted(predictor, inputs, name, number, seen)
            parts.append((prediction, labels if labelled else None, digests_of(inputs)))
            if isinstance(inputs, Tensor):
                layout = Layout.of(inputs) if layout is None else layout.grown(inputs)
                here = _here(keeping, seen, len(inputs))
                if labelled and len(here):
                    kept.append((inputs[here], here + seen))
            seen += len(prediction)
            advance(1)
    if not parts:
        raise ShapeError("there is nothing to evaluate", got=f"no batch of {name}", expected="at least one")
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
            f"the model gave no probabilities on {name}",
            got=f"{error.got}, that is input {seen + error.sample} (batch {number}, place {error.sample})",
            expected="finite numbers",
            remedy="Look for NaN in that input; a model that gives it everywhere has diverged",
        ) from None
    except RuntimeError as error:  # torch's own words on shapes and types that do not fit
        shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else type(inputs).__name__
        raise ShapeError(
            f"the model cannot take the inputs of {name}",
            got=f"samples of shape {shape}: {str(error).splitlines()[0]}",
        ) from error
    if len(prediction) != count_of(inputs):
        raise ShapeError(
            f"the model gave another number of answers than there are inputs of {name}",
            got=f"{len(prediction)} for {count_of(inputs)}",
        )
    return prediction


def _joined(
    labels: list[Any], count: int, name: str, own: tuple[str, ...], known: tuple[str, ...]
) -> tuple[Tensor, list[str]]:
    """Join the labels of batches, numbered by the known classes; say if names did not help."""
    if any(part is None for part in labels):
        raise LabelError(f"{name} has no labels", expected="(inputs, labels) in every batch")
    arrays = [np.asarray(part) for part in labels]
    if arrays[0].dtype.kind in "OUS":
        codes, _ = encoded_labels(np.concatenate(arrays), count, known or own or None, at_least=1)
        return torch.from_numpy(codes), []
    found = torch.cat([torch.as_tensor(array) for array in arrays])
    if found.dim() == 2 and found.dtype == torch.bool and bool((found.sum(1) == 1).all()):
        found = found.int().argmax(1)  # sets of one class each
    if found.dim() != 1 or len(found) != count or found.is_floating_point():
        raise LabelError(
            f"the labels of {name} are no classes",
            got=f"{found.dtype} of shape {tuple(found.shape)} for {count} inputs",
            expected="one class index for each input",
            remedy="Set-valued labels have no single true class to compare with: test on data that name one "
            "for each input (--test SOURCE)"
            if found.dim() > 1
            else "",
        )
    if not own or not known or own == known:
        return found.long(), []
    if all(label in known for label in own):
        order = torch.tensor([known.index(label) for label in own])
        if not 0 <= int(found.min()) <= int(found.max()) < len(own):
            raise LabelError(f"a label of {name} is beyond its classes", got=int(found.max()))
        return order[found.long()], []
    if len(own) == len(known):
        return found.long(), ["its classes have other names than the model's, and are taken in their order"]
    raise LabelError(
        f"{name} has other classes than the model",
        got=", ".join(own[:5]),
        expected=", ".join(known[:5]),
    )


def _chosen(samples: int | None, keep: int, seed: int) -> Tensor | int:
    """Choose which inputs to remember; of a stream, the first ones."""
    if samples is None or keep >= samples:
        return keep if samples is None else samples
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    return order[:keep].sort().values


def _here(keeping: Tensor | int, start: int, count: int) -> Tensor:
    if isinstance(keeping, int):
        return torch.arange(max(0, min(count, keeping - start)))
    return keeping[(keeping >= start) & (keeping < start + count)] - start


def _peek(batches: Any, feed: Feed) -> Layout | None:
    inputs, _ = feed(next(iter(batches)))
    return Layout.of(inputs) if isinstance(inputs, Tensor) else None


def _on_devices(predictor: Predictor, batches: Any, feed: Feed, devices: int, name: str) -> list[_Part]:
    try:
        import_torchvision_first()
        from randomset._core.distributed import in_processes
        from randomset.evaluation.distributed import BatchPredictor
    except ModuleNotFoundError:
        raise MissingPackageError("lightning", "train") from None
    if isinstance(batches, Rows) and all(isinstance(part, Tensor) for part in batches.parts):
        batches = DataLoader(TensorDataset(*batches.parts), batch_size=batches.size)
    if not isinstance(batches, DataLoader):
        raise RandomSetError(
            f"{name} cannot be shared among devices",
            got=type(batches).__name__,
            expected="tensors, a data set or a data loader",
        )
    found = in_processes(BatchPredictor(predictor, feed), batches, devices, enable_progress_bar=False)
    scores = {key[7:]: value for key, value in found.items() if key.startswith("scores.")}
    bounds = [found.get(side) for side in ("lower", "upper", "negative")]
    return [(Prediction(found["probabilities"], scores, *bounds), found.get("labels"), found["digests"])]
