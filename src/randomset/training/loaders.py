"""Batches in an order that depends on seed and epoch alone, so that training can stop and go on anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from randomset.errors import RandomSetError, ShapeError

__all__ = ["EpochLoader", "seed_from", "training_loader", "validation_loader"]


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

    The order is a function of (seed, epoch); `epoch` and `position` say which batch comes next, and can be
    set. A last batch of less than an eighth of the others, or of a single sample, joins the one before it.
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
        self.epoch = self.position = 0
        try:
            self.samples = len(dataset)  # type: ignore[arg-type]
        except TypeError:
            raise RandomSetError(
                "the data set has no length", got=type(dataset).__name__, remedy="Give a data loader of it"
            ) from None
        if not self.samples:
            raise ShapeError("the data set is empty", got="0 samples", expected="at least one")

    def __len__(self) -> int:
        return len(self._bounds()) - 1

    def __iter__(self) -> Iterator[Any]:
        last, start = len(self), self.position
        if start >= last:
            self.epoch, self.position, start = self.epoch + 1, 0, 0
        batches = self._batches()[start:]
        for place, batch in enumerate(self._read(batches), start + 1):
            # Set before the batch is given away: nobody may come back for a batch that is not there.
            done = place == last
            self.epoch, self.position = (self.epoch + 1, 0) if done else (self.epoch, place)
            yield batch

    def _bounds(self) -> list[int]:
        size = self.batch_size * (_processes()[1] if self.for_each_process else 1)
        bounds = [*range(0, self.samples, size), self.samples]
        rest = bounds[-1] - bounds[-2]
        if len(bounds) > 2 and rest < size and (self.drop_last or rest < max(2, size / 8)):
            bounds = bounds[:-1] if self.drop_last else [*bounds[:-2], bounds[-1]]
        return bounds

    def _batches(self) -> list[list[int]]:
        """Return this process's part of every batch of the epoch."""
        order = torch.arange(self.samples)
        if self.shuffle:
            generator = torch.Generator().manual_seed(seed_from(self.seed, self.epoch))
            order = torch.randperm(self.samples, generator=generator)
        rank, processes = _processes()
        bounds = self._bounds()
        ends = itertools.pairwise(bounds)
        return [order[start:end][rank::processes].tolist() for start, end in ends]

    def _read(self, batches: list[list[int]]) -> Iterator[Any]:
        if type(self.dataset) is TensorDataset and self.options.get("collate_fn") is None:
            for batch in batches:  # whole rows at once, many times faster than one by one
                yield [tensor[batch] for tensor in self.dataset.tensors]
        else:
            yield from DataLoader(self.dataset, batch_sampler=batches, **self.options)


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
        )
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return EpochLoader(data, batch_size, seed=seed, num_workers=workers)
    return _iterable(data, "training")


def validation_loader(data: Any, batch_size: int, workers: int) -> Any:
    """Make validation data into batches in their own order."""
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return EpochLoader(data, batch_size, shuffle=False, num_workers=workers)
    return _iterable(data, "validation")


def _iterable(data: Any, what: str) -> Any:
    if not hasattr(data, "__iter__"):
        raise RandomSetError(
            f"the {what} data are of no known kind",
            got=type(data).__name__,
            expected="a data set, a data loader or a Lightning data module",
            remedy="TensorDataset(inputs, labels) makes a data set of two tensors",
        )
    return _Batches(data) if isinstance(data, (list, tuple)) else data


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


def _processes() -> tuple[int, int]:
    """Return the number of this process, and of all."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
