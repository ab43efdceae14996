"""Batches whose order follows from seed and epoch."""

import itertools
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset

from randomset.errors import RandomSetError, ShapeError
from randomset.training.loaders import (
    EpochLoader,
    labels_of,
    seed_from,
    training_loader,
    validation_loader,
)

NUMBERS = TensorDataset(torch.arange(10), torch.arange(10) * 10)


class Slow(Dataset):
    """Gives one sample at a time."""

    def __len__(self):
        return 10

    def __getitem__(self, place):
        return place, 10 * place


def seen(loader):
    return [batch[0].tolist() for batch in loader]


class TestEpochLoader:
    @pytest.mark.parametrize("dataset", [NUMBERS, Slow()], ids=["tensors", "one by one"])
    def test_every_sample_once_in_every_epoch(self, dataset):
        loader = EpochLoader(dataset, 4, seed=1)
        for _ in range(3):
            batches = seen(loader)
            assert [len(batch) for batch in batches] == [4, 4, 2]
            assert sorted(itertools.chain.from_iterable(batches)) == list(range(10))

    def test_the_order_follows_from_seed_and_epoch(self):
        first, second = EpochLoader(NUMBERS, 4, seed=1), EpochLoader(Slow(), 4, seed=1)
        epochs = [seen(first) for _ in range(3)]
        assert epochs == [seen(second) for _ in range(3)]
        assert epochs[0] != epochs[1]
        assert epochs[0] != seen(EpochLoader(NUMBERS, 4, seed=2))
        torch.manual_seed(5)  # torch's own generator plays no part
        assert seen(EpochLoader(NUMBERS, 4, seed=1)) == epochs[0]

    def test_resumes_from_any_batch(self):
        whole = EpochLoader(NUMBERS, 4)
        expected = seen(whole) + seen(whole)
        for start in range(6):
            loader = EpochLoader(NUMBERS, 4)
            loader.start_at(*divmod(start, 3))
            rest = seen(loader)
            rest += seen(loader) if start < 3 else []
            assert rest == expected[start:]

    def test_the_position_after_every_batch(self):
        loader = EpochLoader(NUMBERS, 4)
        batches = iter(loader)
        states = []
        for _ in range(3):
            next(batches)
            states.append((loader.epoch, loader.position))
        assert states == [(0, 1), (0, 2), (1, 0)]

    def test_a_single_sample_joins_the_batch_before(self):
        loader = EpochLoader(NUMBERS, 3, shuffle=False)
        assert seen(loader) == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
        assert len(loader) == 3
        assert seen(EpochLoader(NUMBERS, 3, shuffle=False, drop_last=True)) == [
            [0, 1, 2],
            [3, 4, 5],
            [6, 7, 8],
        ]
        assert seen(EpochLoader(NUMBERS, 64, shuffle=False, drop_last=True)) == [list(range(10))]

    def test_processes_share_every_batch(self, monkeypatch):
        parts = []
        for rank in range(2):
            monkeypatch.setattr(EpochLoader, "_processes", lambda self, rank=rank: (rank, 2))
            parts.append(seen(EpochLoader(NUMBERS, 4, seed=3)))
        monkeypatch.undo()
        first, *rest = seen(EpochLoader(NUMBERS, 4, seed=3))
        whole = [first, list(itertools.chain(*rest))]  # two samples are too few for two processes
        assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(batch) for batch in whole]
        assert [len(batch) for batch in parts[0]] == [2, 3]

    @pytest.mark.parametrize("drop_last", [False, True])
    @pytest.mark.parametrize(("processes", "size"), [(4, 8), (2, 4), (3, 3), (2, 3), (4, 64)])
    def test_no_process_is_left_without_samples(self, monkeypatch, processes, size, drop_last):
        """Of 10 samples in batches of 8, two are left: four processes cannot share them."""
        parts = []
        for rank in range(processes):
            monkeypatch.setattr(EpochLoader, "_processes", lambda self, rank=rank: (rank, processes))
            parts.append(seen(EpochLoader(NUMBERS, size, drop_last=drop_last)))
        lengths = [[len(batch) for batch in part] for part in parts]
        assert len({len(part) for part in lengths}) == 1
        assert min(map(min, lengths)) >= min(2, size // processes)
        if not drop_last:
            assert sum(map(sum, lengths)) == 10

    def test_more_processes_than_samples(self, monkeypatch):
        monkeypatch.setattr(EpochLoader, "_processes", lambda self: (0, 11))
        with pytest.raises(RandomSetError, match="batches of 10 samples for 11 processes"):
            len(EpochLoader(NUMBERS, 64))
        with pytest.raises(RandomSetError, match="batches of 4 samples for 11 processes"):
            seen(EpochLoader(NUMBERS, 4))

    def test_nothing_to_load(self):
        with pytest.raises(ShapeError, match="empty"):
            EpochLoader(TensorDataset(torch.zeros(0)), 4)

    def test_neighbouring_seeds_differ(self):
        seeds = {seed_from(a, b) for a in range(30) for b in range(30)}
        assert len(seeds) == 900
        assert all(0 <= seed < 2**63 for seed in seeds)


class TestBalance:
    labels = torch.tensor([0] * 30 + [1] * 7 + [2] * 3)

    def loader(self, **options):
        loader = EpochLoader(TensorDataset(torch.arange(40), self.labels), 8, **options)
        loader.balanced = self.labels
        return loader

    def test_every_class_is_drawn_equally_often(self):
        loader, seen_samples = self.loader(seed=1), set()
        for _ in range(3):
            places, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
            assert sorted(labels.bincount().tolist()) == [13, 13, 14]
            rare = places[labels == 2].bincount()[37:]
            assert rare.max() - rare.min() <= 1  # all before one is drawn again
            assert len(places[labels == 0].unique()) == int((labels == 0).sum())
            seen_samples |= set(places.tolist())
        assert len(seen_samples) > 30  # other ones of the common class in every epoch

    def test_the_order_resumes_from_any_batch(self):
        loader = self.loader(seed=2)
        expected = seen(loader) + seen(loader)
        for start in (1, 4, 5, 7):
            again = self.loader(seed=2)
            again.start_at(*divmod(start, 5))
            assert (seen(again) + (seen(again) if start < 5 else [])) == expected[start:]

    def test_ignored_samples_are_not_drawn(self):
        loader = self.loader()
        loader.balanced = self.labels.where(self.labels != 0, -1)
        labels = torch.cat([labels for _, labels in loader])
        assert labels.bincount().tolist() == [0, 20, 20]

    def test_processes_share_the_drawn_samples(self, monkeypatch):
        whole = seen(self.loader(seed=3))
        parts = []
        for rank in range(2):
            monkeypatch.setattr(EpochLoader, "_processes", lambda self, rank=rank: (rank, 2))
            parts.append(seen(self.loader(seed=3)))
        assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(batch) for batch in whole]


class TestLabels:
    def test_where_labels_are_found(self):
        class Folder(Slow):
            targets = list(range(0, 100, 10))  # noqa: RUF012

        expected = NUMBERS.tensors[1]
        for data in (
            NUMBERS,
            tuple(NUMBERS.tensors),
            Folder(),
            DataLoader(Folder(), 3),
            EpochLoader(NUMBERS, 4),
        ):
            assert torch.equal(labels_of(data), expected)
        for data in (NUMBERS, Folder()):
            assert labels_of(Subset(data, [3, 1])).tolist() == [30, 10]

    def test_where_they_are_not(self):
        for data in (Slow(), TensorDataset(torch.zeros(3)), [NUMBERS.tensors], Subset(Slow(), [1]), 3):
            assert labels_of(data) is None


class TestKindsOfData:
    def test_a_plain_loader_becomes_reproducible(self):
        loader = training_loader(DataLoader(NUMBERS, 4, shuffle=True), 99, 7, 0)
        assert isinstance(loader, EpochLoader)
        assert (loader.batch_size, loader.seed, loader.shuffle) == (4, 7, True)
        assert not training_loader(DataLoader(NUMBERS, 4), 99, 7, 0).shuffle

    def test_a_collate_function_is_kept(self):
        loader = training_loader(DataLoader(NUMBERS, 5, collate_fn=len), 99, 0, 0)
        assert list(loader) == [5, 5]

    @pytest.mark.parametrize(
        "loader",
        [
            DataLoader(NUMBERS, 4, sampler=RandomSampler(NUMBERS, replacement=True)),
            DataLoader(NUMBERS, 4, sampler=RandomSampler(NUMBERS, num_samples=3)),
            DataLoader(NUMBERS, batch_sampler=[[0, 1], [2]]),
        ],
    )
    def test_other_loaders_are_unchanged(self, loader):
        assert training_loader(loader, 99, 0, 0) is loader

    def test_validation_keeps_its_order(self):
        assert seen(validation_loader(NUMBERS, 6, 0)) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]

    def test_invalid_data(self):
        for make in (lambda: training_loader(3, 4, 0, 0), lambda: validation_loader(3, 4, 0)):
            with pytest.raises(RandomSetError, match="cannot read the"):
                make()

    def test_a_stream_is_cut_into_batches(self):
        class Stream(IterableDataset):
            def __iter__(self):
                yield from (NUMBERS[i] for i in range(10))

        for loader in (training_loader(Stream(), 4, 0, 0), validation_loader(Stream(), 4, 0)):
            assert seen(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    @pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
    def test_random_numbers_of_a_data_set_follow_from_the_sample(self, workers):
        class Noisy(Slow):
            def __getitem__(self, place):
                return place, random.random() + np.random.rand() + torch.rand(()).item()  # noqa: NPY002

        runs = []
        for _ in range(2):
            random.seed()
            loader = EpochLoader(Noisy(), 4, seed=3, num_workers=workers)
            epochs = [
                {int(k): float(v) for batch in loader for k, v in zip(*batch, strict=True)} for _ in "12"
            ]
            runs.append(epochs)
        assert runs[0] == runs[1]
        assert runs[0][0] != runs[0][1]
        assert len(set(runs[0][0].values())) == 10

    def test_an_abandoned_iteration_is_over(self):
        validation = validation_loader(NUMBERS, 4, 0)
        for _ in range(3):
            assert next(iter(validation))[0].tolist() == [0, 1, 2, 3]
        training = training_loader(NUMBERS, 4, 1, 0)
        expected = [seen(training)[0] for _ in range(3)]
        training = training_loader(NUMBERS, 4, 1, 0)
        assert [next(iter(training))[0].tolist() for _ in range(3)] == expected


class TestTextsInBatches:
    def loader(self, batch_size=8):
        lengths = torch.randint(1, 40, (203,), generator=torch.Generator().manual_seed(0))
        tokens = torch.where(torch.arange(40) < lengths[:, None], 5, -1)
        data = torch.utils.data.TensorDataset(tokens, torch.arange(203))
        return EpochLoader(data, batch_size, seed=3), lengths

    def test_neighbours_are_of_similar_length(self):
        loader, lengths = self.loader()
        batches = [labels for _, labels in loader]
        assert sorted(torch.cat(batches).tolist()) == list(range(203))
        filled = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
        assert filled < 1.15 * int(lengths.sum())  # at random it is about 1.7 times
        assert [len(batch) for batch in batches][:-1] == [8] * (len(batches) - 1)

    def test_another_order_in_every_epoch(self):
        loader, _ = self.loader()
        first, second = ([labels.tolist() for _, labels in loader] for _ in range(2))
        assert first != second
        again, _ = self.loader()
        assert [labels.tolist() for _, labels in again] == first
