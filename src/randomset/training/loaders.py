"""Data loaders whose order depends only on seed and epoch, so that training can resume."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from randomset._core.batches import labelled_batches, paired
from randomset.errors import RandomSetError, ShapeError

__all__ = [
    "EpochLoader",
    "labels_of",
    "seed_everything",
    "seed_from",
    "training_loader",
    "validation_loader",
]


def seed_from(*numbers: int) -> int:
    """Hash integers into one seed.

    >>> seed_from(0, 1) == seed_from(0, 1), seed_from(0, 1) == seed_from(1, 0)
    (True, False)
    """
    mixed = 0
    for number in numbers:
        mixed = (mixed ^ (number & 0xFFFFFFFF)) * 0x9E3779B97F4A7C15 + 0x7F4A7C15
        mixed = (mixed ^ (mixed >> 29)) & 0xFFFFFFFFFFFFFFFF
    return mixed >> 1  # torch takes 63 bits


class EpochLoader:
    """A reproducible, resumable data loader; each process gets its share of every batch.

    The order depends only on (seed, epoch), and so do the random numbers that the data set draws when it
    reads a sample. `epoch` and `position` identify the next batch; `start_at` sets them for the next
    iteration. A last batch smaller than an eighth of the batch size, or with fewer than two samples per
    process, is merged with the previous one, so that all processes have the same number of non-empty batches.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        for_each_process: bool = False,
        **options: Any,
    ) -> None:
        self.dataset, self.batch_size, self.seed = dataset, batch_size, seed
        self.shuffle, self.drop_last, self.for_each_process = shuffle, drop_last, for_each_process
        self.options = options
        self.shared = True  # whether batches are split among processes
        self.balanced: Tensor | None = None
        """The class of every sample (negative: none), if each class is to be drawn equally often."""
        self.epoch = self.position = 0
        self._next = (0, 0)
        try:
            self.samples = len(dataset)  # type: ignore[arg-type]
        except TypeError:
            raise RandomSetError(
                "the data set has no length", got=type(dataset).__name__, remedy="Pass a data loader instead"
            ) from None
        if not self.samples:
            raise ShapeError("the data set is empty", got="0 samples", expected="at least one sample")

    def start_at(self, epoch: int, position: int) -> None:
        """Start the next iteration at the given epoch and batch."""
        self.epoch, self.position = self._next = epoch, position

    @property
    def layout(self) -> dict[str, int]:
        """Properties that must match in order to resume within an epoch."""
        return {"samples": self.samples, "batches": len(self), "shuffled": int(self.shuffle)}

    def __len__(self) -> int:
        return len(self._bounds()) - 1

    def __iter__(self) -> Iterator[Any]:
        epoch, start = self._next
        self._next = (epoch + 1, 0)
        last, batches = len(self), self._batches(epoch)[start:]
        for place, batch in enumerate(self._read(batches, epoch), start + 1):
            # Update before yielding: a checkpoint must never point past the last batch.
            self.epoch, self.position = (epoch + 1, 0) if place == last else (epoch, place)
            yield batch

    def _bounds(self) -> list[int]:
        processes = self._processes()[1]
        size = self.batch_size * (processes if self.for_each_process else 1)
        if min(size, self.samples) < processes:
            raise RandomSetError(
                "the batch size is smaller than the number of processes",
                got=f"batches of {min(size, self.samples)} samples for {processes} processes",
                expected="at least one sample per process",
                remedy="Use a larger batch size, more data, or fewer devices",
            )
        bounds = [*range(0, self.samples, size), self.samples]
        rest = bounds[-1] - bounds[-2]
        if len(bounds) > 2 and rest < size and (self.drop_last or rest < max(2 * processes, size / 8)):
            bounds = bounds[:-1] if self.drop_last else [*bounds[:-2], bounds[-1]]
        return bounds

    def _batches(self, epoch: int) -> list[list[int]]:
        """Return this process's share of every batch of the epoch."""
        order = torch.arange(self.samples)
        if self.shuffle:
            generator = torch.Generator().manual_seed(seed_from(self.seed, epoch))
            if self.balanced is None:
                order = torch.randperm(self.samples, generator=generator)
            else:
                order = balanced_order(self.balanced, generator)
            order = self._neighbours(order, generator)
        rank, processes = self._processes()
        ends = itertools.pairwise(self._bounds())
        return [order[start:end][rank::processes].tolist() for start, end in ends]

    def _neighbours(self, order: Tensor, generator: torch.Generator) -> Tensor:
        """Put texts of similar length into the same batch to reduce padding.

        Texts are sorted within chunks of 50 batches, and the batches are shuffled again.
        """
        tensors, rows = _tensors(self.dataset)
        if tensors is None or tensors[0].dim() != 2 or tensors[0].dtype != torch.long:
            return order
        lengths = (tensors[0] if rows is None else tensors[0][rows]).ge(0).sum(1)
        size = self.batch_size
        sorted_ = [part[lengths[part].argsort(stable=True)] for part in order.split(50 * size)]
        batches = torch.cat(sorted_).split(size)
        last = len(batches) - 1  # the incomplete batch stays last
        places = [*torch.randperm(last, generator=generator).tolist(), last]
        return torch.cat([batches[place] for place in places])

    def _read(self, batches: list[list[int]], epoch: int) -> Iterator[Any]:
        tensors, rows = _tensors(self.dataset)
        if tensors is not None and self.options.get("collate_fn") is None:
            for batch in batches:  # index whole batches: many times faster than sample by sample
                places = batch if rows is None else rows[batch]
                yield [tensor[places] for tensor in tensors]
        else:
            samples = _SeededSamples(self.dataset, seed_from(self.seed, epoch))
            yield from DataLoader(samples, batch_sampler=batches, **self.options)

    def _processes(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes that share the data."""
        if self.shared and torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1


def balanced_order(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Draw as many samples as there are, in random order, equally many of each class: (n) → (n).

    The samples of a class are all drawn before one is drawn again. Samples with a negative label are not
    drawn.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> drawn = balanced_order(labels, torch.Generator().manual_seed(0))
    >>> labels[drawn].bincount()
    tensor([3, 3])
    """
    members = [(labels == label).nonzero()[:, 0] for label in labels[labels >= 0].unique().tolist()]
    each, more = divmod(len(labels), len(members))
    favoured = set(torch.randperm(len(members), generator=generator)[:more].tolist())
    drawn = []
    for place, samples in enumerate(members):
        number = each + (place in favoured)
        rounds = -(-number // len(samples))
        orders = [torch.randperm(len(samples), generator=generator) for _ in range(rounds)]
        drawn.append(samples[torch.cat(orders)[:number]])
    order = torch.cat(drawn)
    return order[torch.randperm(len(order), generator=generator)]


def labels_of(data: Any) -> Tensor | None:
    """Return the labels of a data set or a loader without reading its inputs; None if that is impossible.

    They are the second tensor of a TensorDataset, or the `targets` of a data set such as torchvision's.
    """
    data = data.dataset if isinstance(data, (DataLoader, EpochLoader)) else paired(data)
    rows = None
    if type(data) is Subset:
        data, rows = data.dataset, torch.as_tensor(data.indices)
    labels = data.tensors[1] if type(data) is TensorDataset and len(data.tensors) > 1 else None
    if labels is None and isinstance(data, Dataset):
        try:
            labels = torch.as_tensor(getattr(data, "targets", None))
        except (TypeError, ValueError, RuntimeError):
            return None
    return labels if labels is None or rows is None else labels[rows]


def _tensors(data: Dataset[Any]) -> tuple[tuple[Tensor, ...] | None, Tensor | None]:
    """Return the tensors and row indices of a TensorDataset or a subset of one, otherwise None."""
    if type(data) is TensorDataset:
        return data.tensors, None
    if type(data) is Subset and type(data.dataset) is TensorDataset:
        return data.dataset.tensors, torch.as_tensor(data.indices)
    return None, None


class _SeededSamples(Dataset[Any]):
    """A data set whose random numbers depend only on the seed and the sample, in every worker process."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __getitem__(self, place: int) -> Any:
        seed_everything(seed_from(self.seed, place))
        return self.dataset[place]


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's CPU generators."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)


def training_loader(data: Any, batch_size: int, seed: int, workers: int) -> Any:
    """Return a reproducible loader for a data set, or for a DataLoader with a standard sampler."""
    if isinstance(data, EpochLoader):
        return data
    if isinstance(data, DataLoader):
        plain = type(data) is DataLoader and type(data.sampler) in (RandomSampler, SequentialSampler)
        if not plain or data.batch_size is None or isinstance(data.dataset, IterableDataset):
            return data
        sampler = data.sampler
        if isinstance(sampler, RandomSampler) and (
            sampler.replacement or sampler.num_samples != len(sampler.data_source)
        ):
            return data
        return EpochLoader(
            data.dataset,
            data.batch_size,
            seed=seed,
            shuffle=isinstance(sampler, RandomSampler),
            drop_last=data.drop_last,
            for_each_process=True,
            num_workers=data.num_workers,
            collate_fn=None if data.collate_fn is default_collate else data.collate_fn,
            pin_memory=data.pin_memory,
            worker_init_fn=data.worker_init_fn,
        )
    return _batched(data, "training", batch_size, workers, seed=seed)


def validation_loader(data: Any, batch_size: int, workers: int) -> Any:
    """Return a loader for validation data, without shuffling."""
    return _batched(data, "validation", batch_size, workers, shuffle=False)


def _batched(data: Any, purpose: str, batch_size: int, workers: int, **order: Any) -> Any:
    data = paired(data)
    if isinstance(data, IterableDataset):
        return DataLoader(data, batch_size, num_workers=workers)
    if isinstance(data, Dataset):
        return EpochLoader(data, batch_size, num_workers=workers, **order)
    batches = labelled_batches(data, batch_size, purpose)
    return _Batches(batches) if isinstance(batches, (list, tuple)) else batches


class _Batches:
    """Wraps a list of batches, which Lightning would otherwise treat as a list of loaders."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)
