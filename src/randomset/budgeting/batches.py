"""What a data loader gives: inputs and labels told apart, moved to a device, and put through a model."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from randomset.errors import RandomSetError

__all__ = ["as_floating", "call_with", "evaluating", "flat_features", "moved", "split_batch", "usual_workers"]


def call_with(model: nn.Module, inputs: Any) -> Any:
    """Give a model its inputs, by name where they have names."""
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def split_batch(batch: Any) -> tuple[Any, Any]:
    """Separate inputs from labels."""
    if isinstance(batch, Mapping):
        rest = dict(batch)
        found = [rest.pop(name) for name in ("labels", "label") if name in rest]
        return rest, found[0] if found else None
    if isinstance(batch, (tuple, list)):
        if len(batch) > 2:
            raise RandomSetError(
                "a batch has more than inputs and labels",
                got=f"{len(batch)} parts",
                expected="(inputs, labels), or a mapping of names to several inputs",
            )
        return batch[0], batch[1] if len(batch) > 1 else None
    return batch, None


def moved(batch: Any, device: torch.device) -> Any:
    """Move every tensor of a batch to a device."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [moved(value, device) for value in batch]
    return batch


def as_floating(inputs: Any, dtype: torch.dtype) -> Any:
    """Turn arrays into tensors, and give floats the type of a network; bytes and tokens stay as they are."""
    if isinstance(inputs, Mapping):
        return {name: as_floating(value, dtype) for name, value in inputs.items()}
    if not isinstance(inputs, Tensor) and hasattr(inputs, "__array__"):
        inputs = torch.as_tensor(inputs.__array__())
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        return inputs.to(dtype)
    return inputs


def flat_features(features: Tensor, channels_first: bool) -> Tensor:
    """Average what lies between samples and channels, so that features are (batch × F)."""
    if features.dim() < 3:  # without len(…), which an export would take for a constant
        return features if features.dim() == 2 else features[:, None]
    return features.flatten(2).mean(2) if channels_first else features.flatten(1, -2).mean(1)


def usual_workers(data: Any = None) -> int:
    """Return how many processes read a data set: two, where processes start by forking, else none.

    Elsewhere a script without a guard for its main part would start itself again in every worker. A stream is
    read by one process: every worker would give all of it.
    """
    if isinstance(data, IterableDataset):
        return 0
    forks = multiprocessing.get_start_method(allow_none=True) in (None, "fork")
    safe = forks and sys.platform == "linux" and sys.version_info < (3, 14)
    return 2 if safe and not multiprocessing.current_process().daemon else 0


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every part into evaluation mode, and back into its own mode afterwards."""
    training = [module for module in model.modules() if module.training]
    if training:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
