"""Batches in an order that depends on seed and epoch alone, so that training can stop and go on anywhere."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
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
)

from randomset._core.batches import labelled_batches, paired
from randomset.errors import RandomSetError, ShapeError

__all__ = ["EpochLoader", "seed_everything", "seed_from", "training_loader", "validation_loader"]


def seed_from(*numbers: int) -> int:
    """Mix whole numbers into one seed; neighbours give seeds that are far apart.

    >>> seed_from(0, 1) == seed_from(0, 1), seed_from(0, 1) == seed_from(1, 0)
    (True, False)
    """
    mixed = 0
    for number in numbers:
        mixed = (mixed ^ (number & 0xFFFFFFFF)) * 0x9E3779B97F4A7C15 + 0x7F4A7C15
        mixed = (mixed ^ (mixed >> 29)) & 0xFFFFFFFFFFFFFFFF
    return mixed >> 1  # torch takes 63 bits


class EpochLoader:
    """A data set in batches; each process gets its part of every batch.

    The order is a function of (seed, epoch), and so are the random numbers that a data set uses to read a
    sample. `epoch` and `position` say which batch comes next; `start_at` sets them for the next iteration. A
    last batch of less than an eighth of the others, or of less than two samples for each process, joins the
    one before it: every process has as many batches as the others, and none of them is empty.
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
        self.shared = True  # among processes
        self.epoch = self.position = 0
        self._next = (0, 0)
        try:
            self.samples = len(dataset)  # type: ignore[arg-type]
        except TypeError:
            raise RandomSetError(
                "the data set has no length", got=type(dataset).__name__, remedy="Give a data loader of it"
            ) from None
        if not self.samples:
            raise ShapeError("the data set is empty", got="0 samples", expected="at least one")

    def start_at(self, epoch: int, position: int) -> None:
        """Let the next iteration begin at a batch of an epoch."""
        self.epoch, self.position = self._next = epoch, position

    @property
    def layout(self) -> dict[str, int]:
        """What must be the same for an epoch to be gone on with."""
        return {"samples": self.samples, "batches": len(self), "shuffled": int(self.shuffle)}

    def __len__(self) -> int:
        return len(self._bounds()) - 1

    def __iter__(self) -> Iterator[Any]:
        epoch, start = self._next
        self._next = (epoch + 1, 0)
        last, batches = len(self), self._batches(epoch)[start:]
        for place, batch in enumerate(self._read(batches, epoch), start + 1):
            # Set before the batch is given away: nobody may come back for a batch that is not there.
            self.epoch, self.position = (epoch + 1, 0) if place == last else (epoch, place)
            yield batch

    def _bounds(self) -> list[int]:
        processes = self._processes()[1]
        size = self.batch_size * (processes if self.for_each_process else 1)
        if min(size, self.samples) < processes:
            raise RandomSetError(
                "some processes would have nothing to do",
                got=f"batches of {min(size, self.samples)} samples for {processes} processes",
                expected="at least one sample for each",
                remedy="Give a larger batch size, more data, or fewer devices",
            )
        bounds = [*range(0, self.samples, size), self.samples]
        rest = bounds[-1] - bounds[-2]
        if len(bounds) > 2 and rest < size and (self.drop_last or rest < max(2 * processes, size / 8)):
            bounds = bounds[:-1] if self.drop_last else [*bounds[:-2], bounds[-1]]
        return bounds

    def _batches(self, epoch: int) -> list[list[int]]:
        """Return this process's part of every batch of the epoch."""
        order = torch.arange(self.samples)
        if self.shuffle:
            generator = torch.Generator().manual_seed(seed_from(self.seed, epoch))
            order = torch.randperm(self.samples, generator=generator)
            order = self._neighbours(order, generator)
        rank, processes = self._processes()
        ends = itertools.pairwise(self._bounds())
        return [order[start:end][rank::processes].tolist() for start, end in ends]

    def _neighbours(self, order: Tensor, generator: torch.Generator) -> Tensor:
        """Bring texts of similar length into the same batch: what is filled up in a batch costs time.

        Within stretches of 50 batches they are sorted, and the batches shuffled again.
        """
        tensors, rows = _tensors(self.dataset)
        if tensors is None or tensors[0].dim() != 2 or tensors[0].dtype != torch.long:
            return order
        lengths = (tensors[0] if rows is None else tensors[0][rows]).ge(0).sum(1)
        size = self.batch_size
        sorted_ = [part[lengths[part].argsort(stable=True)] for part in order.split(50 * size)]
        batches = torch.cat(sorted_).split(size)
        last = len(batches) - 1  # the shortest stays last: the bounds of the others are fixed
        places = [*torch.randperm(last, generator=generator).tolist(), last]
        return torch.cat([batches[place] for place in places])

    def _read(self, batches: list[list[int]], epoch: int) -> Iterator[Any]:
        tensors, rows = _tensors(self.dataset)
        if tensors is not None and self.options.get("collate_fn") is None:
            for batch in batches:  # whole rows at once, many times faster than one by one
                places = batch if rows is None else rows[batch]
                yield [tensor[places] for tensor in tensors]
        else:
            samples = _SeededSamples(self.dataset, seed_from(self.seed, epoch))
            yield from DataLoader(samples, batch_sampler=batches, **self.options)

    def _processes(self) -> tuple[int, int]:
        """Return the number of this process, and of all that share the data."""
        if self.shared and torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1


def _tensors(data: Dataset[Any]) -> tuple[tuple[Tensor, ...] | None, Tensor | None]:
    """Return the tensors that a data set consists of, and which of their rows, if it is so simple."""
    if type(data) is TensorDataset:
        return data.tensors, None
    if type(data) is Subset and type(data.dataset) is TensorDataset:
        return data.dataset.tensors, torch.as_tensor(data.indices)
    return None, None


class _SeededSamples(Dataset[Any]):
    """A data set whose random numbers depend on seed and sample alone, in whatever process it is read."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __getitem__(self, place: int) -> Any:
        seed_everything(seed_from(self.seed, place))
        return self.dataset[place]


def seed_everything(seed: int) -> None:
    """Seed what a data set may draw from: Python, NumPy and torch's CPU generator."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)


def training_loader(data: Any, batch_size: int, seed: int, workers: int) -> Any:
    """Make training data repeatable: a data set, or a loader whose order is the usual one."""
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
            collate_fn=_own_collate(data),
            pin_memory=data.pin_memory,
            worker_init_fn=data.worker_init_fn,
        )
    return _batched(data, "training", batch_size, workers, seed=seed)


def validation_loader(data: Any, batch_size: int, workers: int) -> Any:
    """Make validation data into batches in their own order."""
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
    """A list of batches, which Lightning would take for a list of loaders."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def _own_collate(loader: DataLoader[Any]) -> Callable[[Any], Any] | None:
    from torch.utils.data import default_collate

    return None if loader.collate_fn is default_collate else loader.collate_fn
