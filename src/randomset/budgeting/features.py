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
from randomset._core.torchvision import import_lightning
from randomset.errors import LabelError, RandomSetError, ShapeError

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
        self.model = model
        modules = dict(model.named_modules())
        if layer is not None and layer not in modules:
            expected = f"one of {', '.join(list(modules)[1:])}"
            raise RandomSetError("unknown layer", got=layer, expected=expected)
        self.target = None if layer is None else modules[layer]
        self.linears = [module for module in modules.values() if isinstance(module, nn.Linear)]
        self.captured: Any = None

    @torch.inference_mode()
    def __call__(self, batch: Any) -> Part:
        """Return the features and the labels of a batch."""
        inputs, labels = split_batch(batch)
        if self.target is not None:
            hooks = [self.target.register_forward_hook(self._keep_output)]
        else:  # the layer that runs last, not the one defined last, overwrites the inputs of the others
            before, linears = self._keep_input, self.linears
            hooks = [linear.register_forward_pre_hook(before, with_kwargs=True) for linear in linears]
        self.captured = None
        try:
            call_with(self.model, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        captured, self.captured = self.captured, None
        if not isinstance(captured, Tensor):
            raise self._nothing_captured(captured)
        # linear layers take channels last; among other layers, only token sequences have channels last
        maps = self.target is not None and (captured.dim() > 3 or isinstance(self.target, _CHANNELS_FIRST))
        features = flat_features(captured, channels_first=maps)
        return features.float().cpu(), None if labels is None else _checked_labels(labels, len(features))

    def _keep_output(self, module: nn.Module, args: Any, output: Any) -> None:
        self.captured = output

    def _keep_input(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.captured = next(iter((*args, *named.values())))

    def _nothing_captured(self, captured: Any) -> RandomSetError:
        if self.target is not None:
            return RandomSetError(
                "the layer did not return a tensor",
                got="no call of the layer" if captured is None else type(captured).__name__,
                remedy="Choose another with layer=…",
            )
        names = [name for name, _ in self.model.named_children()]
        return RandomSetError(
            "the model has no linear layer",
            got=type(self.model).__name__,
            remedy=f"Choose the layer whose output to use with layer=…: one of {', '.join(names)}",
        )


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
    import_lightning()
    from randomset._core.distributed import in_processes

    with evaluating(model):
        function, shown = partial(_named_features, layer), progress is not False
        outputs = in_processes(function, model, batches, devices, enable_progress_bar=shown)
    return [(outputs["features"], outputs["labels"].numpy() if "labels" in outputs else None)]


def _named_features(layer: str | None, model: nn.Module, batch: Any) -> dict[str, Tensor]:
    features, labels = FeatureProbe(model, layer)(batch)
    return {"features": features} | ({} if labels is None else {"labels": torch.as_tensor(labels)})
