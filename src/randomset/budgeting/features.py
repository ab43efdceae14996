"""Feature extraction: the input of a network's last linear layer, or the output of a named layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from randomset._core.batches import call_with, evaluating, flat_features, moved, progress_bar, split_batch
from randomset._core.torchvision import import_torchvision_first
from randomset.errors import LabelError, RandomSetError, ShapeError, optional_package

__all__ = ["FeatureProbe", "Part", "extract_features", "features_and_labels"]

_CHANNELS_FIRST = (nn.Conv1d, nn.BatchNorm1d, nn.InstanceNorm1d, nn.GroupNorm, nn.AvgPool1d, nn.MaxPool1d)


def extract_features(
    model: nn.Module,
    batches: Any,
    *,
    layer: str | None = None,
    devices: int | None = None,
    progress: bool | None = None,
) -> tuple[NDArray[np.float32], NDArray[Any] | None]:
    """Run a model over a data loader and return features (n × F) and the loader's labels, if any.

    The features are the input of the linear layer that runs last (the paper's penultimate layer) or the
    output of the module named by `layer`. Feature maps are averaged over space, tokens over the sequence. A
    batch is (inputs, labels), a mapping with "labels" or "label" whose other items are passed to the model by
    name, or inputs alone; data sets and tensors are split into batches. The model runs on its own device, in
    evaluation mode, without gradients.

    With several GPUs, or `devices` processes on a CPU, Lightning runs one copy of the model on each; the
    model and the loader must then be picklable.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> batches = [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])), (torch.randn(1, 4), torch.tensor([2]))]
    >>> features, labels = extract_features(model, batches)
    >>> features.shape, labels.tolist()
    ((6, 8), [0, 1, 2, 0, 1, 2])
    """
    if not isinstance(model, nn.Module):
        raise RandomSetError("model must be a torch.nn.Module", got=type(model).__name__)
    if isinstance(batches, Tensor):
        batches = batches.split(256)
    elif isinstance(batches, Dataset) and not isinstance(batches, IterableDataset):
        batches = DataLoader(batches, batch_size=256)
    if not isinstance(batches, Iterable):
        expected = "a data loader or data set"
        raise RandomSetError("data must be iterable", got=type(batches).__name__, expected=expected)
    if devices is None:
        on_cuda = any(p.is_cuda for p in model.parameters())
        devices = torch.cuda.device_count() if on_cuda else 1
    if devices > 1:
        parts = _in_processes(model, batches, layer, devices, progress)
    else:
        parts = list(_in_process(model, batches, layer, progress))
    if not parts:
        raise ShapeError("the data loader is empty", expected="at least one batch")
    features = torch.cat([features for features, _ in parts]).numpy()
    labels = [label for _, label in parts if label is not None]
    return features, np.concatenate(labels) if labels else None


Part = tuple[Tensor, "NDArray[Any] | None"]


def features_and_labels(
    features: Any, labels: Any, *, layer: str | None = None, progress: bool | None = None
) -> tuple[Any, Any]:
    """Extract features and labels from (model, loader); return anything else unchanged."""
    if isinstance(features, nn.Module):  # fit(model, loader)
        features, labels = (features, labels), None
    pair = isinstance(features, (tuple, list)) and len(features) == 2
    if not pair or not isinstance(features[0], nn.Module):
        return features, labels
    model, batches = features
    extracted, own_labels = extract_features(model, batches, layer=layer, progress=progress)
    if labels is None:
        return extracted, own_labels
    if own_labels is not None and not np.array_equal(np.asarray(labels), own_labels):
        raise LabelError("labels differ from those of the loader", remedy="Omit the labels")
    if own_labels is None and isinstance(getattr(batches, "sampler", None), RandomSampler):
        raise LabelError("the loader shuffles, so separate labels cannot be matched with its samples")
    return extracted, labels


def _in_process(
    model: nn.Module, batches: Iterable[Any], layer: str | None, progress: bool | None
) -> Iterator[Part]:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    total = len(batches) if isinstance(batches, Sized) else None
    probe = FeatureProbe(model, layer)
    with evaluating(model), progress_bar("extracting features", total, progress) as advance:
        for batch in batches:
            yield probe(moved(batch, device))
            advance(1)


class FeatureProbe:
    """Runs a model and captures its features with hooks."""

    def __init__(self, model: nn.Module, layer: str | None) -> None:
        self.model, self.layer = model, layer
        self.target: nn.Module | None = None
        if layer is not None:
            modules = dict(model.named_modules())
            if layer not in modules:
                expected = "one of " + ", ".join(list(modules)[1:])
                raise RandomSetError("unknown layer", got=layer, expected=expected)
            self.target = modules[layer]

    @torch.inference_mode()
    def __call__(self, batch: Any) -> Part:
        """Return the features and the labels of a batch."""
        inputs, labels = split_batch(batch)
        target = self._last_linear(inputs) if self.target is None else self.target
        self.target = target
        captured: list[Any] = []
        if self.layer is None:
            hook = target.register_forward_pre_hook(
                lambda _, args, named: captured.extend([*args, *named.values()][:1]), with_kwargs=True
            )
        else:
            hook = target.register_forward_hook(lambda _, args, output: captured.append(output))
        try:
            call_with(self.model, inputs)
        finally:
            hook.remove()
        if not captured or not isinstance(captured[-1], Tensor):
            raise RandomSetError(
                "the layer did not return a tensor",
                got=type(captured[-1]).__name__ if captured else "no call of the layer",
                remedy="Choose another with layer=…",
            )
        # linear layers take channels last; among other layers, only token sequences have channels last
        maps = captured[-1].dim() > 3 or isinstance(target, _CHANNELS_FIRST)
        features = flat_features(captured[-1], channels_first=self.layer is not None and maps)
        return features.float().cpu(), None if labels is None else _checked_labels(labels, len(features))

    def _last_linear(self, inputs: Any) -> nn.Module:
        """Find the linear layer that runs last, which need not be the last one defined."""
        last: list[nn.Module] = []
        hooks = [
            module.register_forward_pre_hook(lambda module, _: last.append(module))
            for module in self.model.modules()
            if isinstance(module, nn.Linear)
        ]
        try:
            call_with(self.model, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        if not last:
            names = [name for name, _ in self.model.named_children()]
            raise RandomSetError(
                "the model has no linear layer",
                got=type(self.model).__name__,
                remedy=f"Choose the layer whose output to use with layer=…: one of {', '.join(names)}",
            )
        return last[-1]


def _checked_labels(labels: Any, count: int) -> NDArray[Any]:
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (count,):
        got = f"shape {array.shape}"
        raise LabelError("a batch must have one label per input", got=got, expected=f"({count},)")
    return array


def _in_processes(
    model: nn.Module, batches: Iterable[Any], layer: str | None, devices: int, progress: bool | None
) -> list[Part]:
    """Run one copy of the model per device with Lightning."""
    import_torchvision_first()
    with optional_package("lightning", "train"):
        from randomset._core.distributed import in_processes
    with evaluating(model):
        function, shown = partial(_named_features, layer), progress is not False
        outputs = in_processes(function, model, batches, devices, enable_progress_bar=shown)
    return [(outputs["features"], outputs["labels"].numpy() if "labels" in outputs else None)]


def _named_features(layer: str | None, model: nn.Module, batch: Any) -> dict[str, Tensor]:
    features, labels = FeatureProbe(model, layer)(batch)
    return {"features": features} | ({} if labels is None else {"labels": torch.as_tensor(labels)})
