"""Features from a network: what goes into its last linear layer, or comes out of a named one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from randomset._core.batches import call_with, evaluating, flat_features, moved, split_batch
from randomset._core.progress import progress_bar
from randomset._core.torchvision import import_torchvision_first
from randomset.errors import LabelError, MissingPackageError, RandomSetError, ShapeError

_CHANNELS_FIRST = (nn.Conv1d, nn.BatchNorm1d, nn.InstanceNorm1d, nn.GroupNorm, nn.AvgPool1d, nn.MaxPool1d)

__all__ = ["FeatureProbe", "Part", "extract_features", "features_and_labels"]


def extract_features(
    model: nn.Module,
    batches: Any,
    *,
    layer: str | None = None,
    devices: int | None = None,
    progress: bool | None = None,
) -> tuple[NDArray[np.float32], NDArray[Any] | None]:
    """Run a model over a data loader and return its features (n × F) and the loader's labels, if any.

    The features are the input of the linear layer that runs last, the paper's penultimate layer, or the
    output of the module named by `layer`. Maps of a convolution are averaged over space, tokens over their
    sequence. A batch is (inputs, labels), a mapping whose "labels" or "label" are set aside while the rest
    goes to the model by name, or inputs alone; a data set or a tensor is cut into batches. The model runs
    where it is, in evaluation mode, without gradients.

    With several devices, or `devices=2` processes on a CPU, Lightning's `predict` runs one copy on each; the
    model and the loader must then be picklable.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> batches = [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])), (torch.randn(1, 4), torch.tensor([2]))]
    >>> features, labels = extract_features(model, batches)
    >>> features.shape, labels.tolist()
    ((6, 8), [0, 1, 2, 0, 1, 2])
    """
    if not isinstance(model, nn.Module):
        raise RandomSetError("the model is no torch module", got=type(model).__name__)
    if isinstance(batches, Tensor):
        batches = batches.split(256)
    elif isinstance(batches, Dataset) and not isinstance(batches, IterableDataset):
        batches = DataLoader(batches, batch_size=256)
    if not isinstance(batches, Iterable):
        raise RandomSetError(
            "the data cannot be iterated over",
            got=type(batches).__name__,
            expected="a data loader or data set",
        )
    if devices is None:
        on_cuda = any(p.is_cuda for p in model.parameters())
        devices = torch.cuda.device_count() if on_cuda else 1
    if devices > 1:
        parts = _in_processes(model, batches, layer, devices, progress)
    else:
        parts = list(_in_turn(model, batches, layer, progress))
    if not parts:
        raise ShapeError("the data loader gave no batch", expected="at least one")
    features = torch.cat([features for features, _ in parts]).numpy()
    labels = [label for _, label in parts if label is not None]
    return features, np.concatenate(labels) if labels else None


Part = tuple[Tensor, "NDArray[Any] | None"]


def features_and_labels(
    features: Any, labels: Any, *, layer: str | None = None, progress: bool | None = None
) -> tuple[Any, Any]:
    """Turn (model, loader), or a model and its loader, into features and labels; others stay as they are."""
    if isinstance(features, nn.Module):  # fit(model, loader)
        features, labels = (features, labels), None
    if not (
        isinstance(features, (tuple, list)) and len(features) == 2 and isinstance(features[0], nn.Module)
    ):
        return features, labels
    model, batches = features
    found, seen = extract_features(model, batches, layer=layer, progress=progress)
    if labels is None:
        return found, seen
    if seen is not None and not np.array_equal(np.asarray(labels), seen):
        raise LabelError("the labels are not those that the loader gives", remedy="Leave out the labels")
    if seen is None and isinstance(getattr(batches, "sampler", None), RandomSampler):
        raise LabelError("the loader shuffles, so its features cannot be matched with labels from elsewhere")
    return found, labels


def _in_turn(
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
    """Calls a model and catches the features on their way."""

    def __init__(self, model: nn.Module, layer: str | None) -> None:
        self.model, self.layer = model, layer
        self.target: nn.Module | None = None
        if layer is not None:
            modules = dict(model.named_modules())
            if layer not in modules:
                raise RandomSetError(
                    "the model has no such layer",
                    got=layer,
                    expected="one of " + ", ".join(list(modules)[1:]),
                )
            self.target = modules[layer]

    @torch.inference_mode()
    def __call__(self, batch: Any) -> Part:
        """Return the features and the labels of a batch."""
        inputs, labels = split_batch(batch)
        target = self._last_linear(inputs) if self.target is None else self.target
        self.target = target
        caught: list[Any] = []
        if self.layer is None:
            hook = target.register_forward_pre_hook(
                lambda _, args, named: caught.extend([*args, *named.values()][:1]), with_kwargs=True
            )
        else:
            hook = target.register_forward_hook(lambda _, args, output: caught.append(output))
        try:
            call_with(self.model, inputs)
        finally:
            hook.remove()
        if not caught or not isinstance(caught[-1], Tensor):
            raise RandomSetError(
                "the layer gave no tensor",
                got=type(caught[-1]).__name__ if caught else "no call of it",
                remedy="Name another with layer=…",
            )
        # a linear layer takes channels last; of other layers, only sequences of tokens have them last
        maps = caught[-1].dim() > 3 or isinstance(target, _CHANNELS_FIRST)
        features = flat_features(caught[-1], channels_first=self.layer is not None and maps)
        return features.float().cpu(), None if labels is None else _labels(labels, len(features))

    def _last_linear(self, inputs: Any) -> nn.Module:
        """Find the linear layer that runs last; the order of definition may be another."""
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
                "the model has no linear layer to take features from",
                got=type(self.model).__name__,
                remedy=f"Name the layer whose output to use with layer=…: one of {', '.join(names)}",
            )
        return last[-1]


def _labels(labels: Any, count: int) -> NDArray[Any]:
    found = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if found.shape != (count,):
        raise LabelError(
            "a batch has not one label for each input", got=f"shape {found.shape}", expected=f"({count},)"
        )
    return found


def _in_processes(
    model: nn.Module, batches: Iterable[Any], layer: str | None, devices: int, progress: bool | None
) -> list[Part]:
    """Let Lightning run a copy of the model on every device; each writes its part into a folder."""
    try:
        import_torchvision_first()
        from randomset._core.distributed import in_processes
        from randomset.budgeting.distributed import FeaturePredictor
    except ModuleNotFoundError:
        raise MissingPackageError("lightning", "train") from None
    with evaluating(model):
        found = in_processes(
            FeaturePredictor(model, layer), batches, devices, enable_progress_bar=progress is not False
        )
    return [(found["features"], found["labels"].numpy() if "labels" in found else None)]
