"""Batches whose order follows from seed and epoch, recipes, augmentation."""

import dataclasses
import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

from randomset import Budget, RandomSetNetwork, Recipe, backbones
from randomset.errors import RandomSetError, ShapeError
from randomset.training.augmentation import shifted_and_flipped
from randomset.training.loaders import EpochLoader, seed_from, training_loader, validation_loader

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

    def test_goes_on_from_any_batch(self):
        whole = EpochLoader(NUMBERS, 4)
        expected = seen(whole) + seen(whole)
        for start in range(6):
            loader = EpochLoader(NUMBERS, 4)
            loader.start_at(*divmod(start, 3))
            rest = seen(loader)
            rest += seen(loader) if start < 3 else []
            assert rest == expected[start:]

    def test_knows_where_it_stands_even_if_the_last_batch_is_not_asked_for_twice(self):
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

    def test_seeds_of_neighbours_lie_apart(self):
        seeds = {seed_from(a, b) for a in range(30) for b in range(30)}
        assert len(seeds) == 900
        assert all(0 <= seed < 2**63 for seed in seeds)


class TestKindsOfData:
    def test_a_plain_loader_becomes_repeatable(self):
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
    def test_others_are_left_as_they_are(self, loader):
        assert training_loader(loader, 99, 0, 0) is loader

    def test_validation_keeps_its_order(self):
        assert seen(validation_loader(NUMBERS, 6, 0)) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]

    def test_what_is_no_data(self):
        for make in (lambda: training_loader(3, 4, 0, 0), lambda: validation_loader(3, 4, 0)):
            with pytest.raises(RandomSetError, match="cannot read the"):
                make()

    def test_a_stream_is_cut_into_batches(self):
        class Stream(IterableDataset):
            def __iter__(self):
                yield from (NUMBERS[i] for i in range(10))

        for loader in (training_loader(Stream(), 4, 0, 0), validation_loader(Stream(), 4, 0)):
            assert seen(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    @pytest.mark.parametrize("workers", [0, 2])
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

    def test_an_iteration_that_is_cut_short_is_over(self):
        validation = validation_loader(NUMBERS, 4, 0)
        for _ in range(3):
            assert next(iter(validation))[0].tolist() == [0, 1, 2, 3]
        training = training_loader(NUMBERS, 4, 1, 0)
        expected = [seen(training)[0] for _ in range(3)]
        training = training_loader(NUMBERS, 4, 1, 0)
        assert [next(iter(training))[0].tolist() for _ in range(3)] == expected


class TestRecipe:
    def test_a_head_that_learns_faster(self):
        network = RandomSetNetwork(backbones.mlp(4), Budget.singletons(3))
        optimizer = Recipe.named("fast-head").optimizer_for([network])
        rates = {id(p): round(group["lr"], 9) for group in optimizer.param_groups for p in group["params"]}
        assert {rates[id(p)] for p in network.head.parameters()} == {0.03}
        assert {rates[id(p)] for p in network.backbone.parameters()} == {0.003}

    def test_the_papers(self):
        paper = Recipe.paper()
        assert (paper.optimizer, paper.learning_rate, paper.epochs, paper.batch_size) == (
            "adam",
            1e-3,
            200,
            128,
        )
        assert (paper.milestones, paper.factor) == ((80, 120, 160, 180), 0.1)
        assert (paper.shift, paper.flip) == (0.1, True)
        optimizer = paper.optimizer_for([nn.Linear(3, 2)])
        scheduler = paper.scheduler_for(optimizer, 1000)["scheduler"]
        rates = []
        for _ in range(200):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert rates[79:81] == pytest.approx([1e-3, 1e-4])
        assert [rates[i] for i in (119, 120, 160, 180, 199)] == pytest.approx([1e-4, 1e-5, 1e-6, 1e-7, 1e-7])

    def test_one_cycle_goes_up_and_down(self):
        recipe = Recipe.fast()
        optimizer = recipe.optimizer_for([nn.Linear(3, 2)])
        scheduler = recipe.scheduler_for(optimizer, 100)["scheduler"]
        rates = []
        for _ in range(100):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert max(rates) == pytest.approx(recipe.learning_rate)
        assert 15 < rates.index(max(rates)) < 35
        assert rates[-1] < 1e-3 * max(rates)

    @pytest.mark.parametrize("steps", [1, 2, 3, 4])
    def test_a_cycle_of_few_steps(self, steps):
        recipe = Recipe.fast()
        optimizer = recipe.optimizer_for([nn.Linear(3, 2)])
        scheduler = recipe.scheduler_for(optimizer, steps)["scheduler"]
        for _ in range(steps):
            assert 0 < optimizer.param_groups[0]["lr"] <= recipe.learning_rate
            optimizer.step()
            scheduler.step()

    @pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
    @pytest.mark.parametrize("schedule", ["one-cycle", "steps", "cosine", "constant"])
    def test_every_combination_takes_a_step(self, optimizer, schedule):
        recipe = Recipe(optimizer=optimizer, schedule=schedule, weight_decay=0.1)
        layer = nn.Linear(3, 2)
        made = recipe.optimizer_for([layer])
        scheduler = recipe.scheduler_for(made, 10)["scheduler"]
        layer(torch.ones(1, 3)).sum().backward()
        before = layer.weight.clone()
        made.step()
        scheduler.step()
        assert not torch.equal(before, layer.weight)
        decays = {len(group["params"][0].shape): group["weight_decay"] for group in made.param_groups}
        assert decays == {2: 0.1, 1: 0.0}

    def test_edited_and_written(self):
        recipe = dataclasses.replace(Recipe.paper(), epochs=10, milestones=(4, 8))
        assert Recipe.from_dict(recipe.as_dict()) == recipe
        assert Recipe.named(recipe, epochs=None, learning_rate=1.0).learning_rate == 1.0
        assert recipe.learning_rate == 1e-3

    def test_what_would_make_a_resumed_training_another_one(self):
        fast, longer = Recipe.fast(), Recipe.named("fast", epochs=99)
        assert longer.differences(fast) == ["epochs 30 → 99"]
        steps = Recipe.paper()
        assert Recipe.named("paper", epochs=300).differences(steps) == []
        assert Recipe.named("paper", batch_size=7).differences(steps) == ["batch_size 128 → 7"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"epochs": 0}, "epochs"),
            ({"epochs": 1.5}, "epochs"),
            ({"batch_size": -1}, "batch_size"),
            ({"learning_rate": -1.0}, "learning_rate"),
            ({"shift": 1.0}, "shift"),
            ({"optimizer": "lion"}, "adam, adamw, sgd"),
            ({"schedule": "zigzag"}, "one-cycle"),
        ],
    )
    def test_mistakes(self, changes, message):
        with pytest.raises(RandomSetError, match=message):
            Recipe.named("fast", **changes)

    def test_unknown_names(self):
        with pytest.raises(RandomSetError, match="paper, fast"):
            Recipe.named("slow")
        with pytest.raises(RandomSetError, match="code"):
            Recipe.from_dict({"code": 1})
        with pytest.raises(RandomSetError, match="all frozen"):
            Recipe.fast().optimizer_for([nn.Linear(2, 2).requires_grad_(False)])


class TestAugmentation:
    images = torch.rand(200, 2, 10, 20, generator=torch.Generator().manual_seed(0))

    def test_every_image_is_a_shift_of_its_own(self):
        torch.manual_seed(0)
        moved = shifted_and_flipped(self.images, shift=0.1)
        found = set()
        for before, after in zip(self.images, moved, strict=True):
            rows, columns = torch.arange(10), torch.arange(20)
            shifts = [
                (dy, dx)
                for dy in (-1, 0, 1)
                for dx in (-2, -1, 0, 1, 2)
                if torch.equal(after, before[:, (rows + dy).clamp(0, 9)][:, :, (columns + dx).clamp(0, 19)])
            ]
            assert len(shifts) == 1
            found.add(shifts[0])
        assert len(found) == 15  # every shift occurs

    def test_half_are_mirrored(self):
        torch.manual_seed(0)
        moved = shifted_and_flipped(self.images, flip=True)
        same = (moved == self.images).flatten(1).all(1)
        mirrored = (moved == self.images.flip(3)).flatten(1).all(1)
        assert (same ^ mirrored).all()
        assert 70 < same.sum() < 130

    def test_bytes_stay_bytes(self):
        pixels = (self.images * 255).byte()
        assert shifted_and_flipped(pixels, 0.2, True).dtype == torch.uint8
