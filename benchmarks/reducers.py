"""Compare reducers by how well the chosen sets predict a network's confusions.

For each data set, a small network is trained and every reducer chooses K sets from its training features. The
measure is the share of test errors whose pair {true, predicted} is in the budget. Two references: the
network's confusion matrix on the training images, and random sets.

Run: RANDOMSET_DATA=folder python -m benchmarks.reducers [data set …]
Digits come with scikit-learn; other data sets are skipped if they are not in the folder.
"""

from __future__ import annotations

import gzip
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from randomset import Budget, Budgeter
from randomset.budgeting import extract_features, from_confusion, random_sets

DATA = Path(os.environ.get("RANDOMSET_DATA", "data"))
SEEDS = 3
TRAIN = 12_000
METHODS = ("pca", "lda", "autoencoder", "tsne", "umap", "confusion", "random")
Split = tuple[Tensor, Tensor]


def main() -> None:
    """Print one table per data set."""
    warnings.simplefilter("ignore")
    wanted = sys.argv[1:] or list(SETS)
    for name in wanted:
        try:
            train, test = SETS[name]()
        except FileNotFoundError:
            print(f"{name}: not in {DATA}\n")
            continue
        compare(name, train, test)


def compare(name: str, train: Split, test: Split) -> None:
    """Print the mean and standard deviation over seeds of the errors that each budget covers."""
    classes = int(train[1].max()) + 1
    counts = (10, 20) if classes <= 10 else (100, 200)
    if classes <= 6:
        counts = (5, 10)
    caught: dict[str, list[list[float]]] = {}
    accuracy = []
    for seed in range(SEEDS):
        network = trained(train, classes, seed)
        features, _ = extract_features(network, train[0].split(500), progress=False)
        labels = train[1].numpy()
        truth, guess = test[1].numpy(), predictions(network, test[0])
        accuracy.append((truth == guess).mean())
        errors = [(int(t), int(g)) for t, g in zip(truth, guess, strict=True) if t != g]
        confusion = np.zeros((classes, classes))
        np.add.at(confusion, (labels, predictions(network, train[0])), 1)
        for method in METHODS:
            budgets = [chosen(method, k, features, labels, confusion, seed) for k in counts]
            shares = [float(np.mean([pair in budget for pair in errors])) for budget in budgets]
            caught.setdefault(method, []).append(shares)
    print(
        f"{name}: {len(train[1])} training images, test accuracy {100 * np.mean(accuracy):.1f} %, "
        f"{SEEDS} seeds; errors caught in %"
    )
    print(f"{'reducer':<14}" + "".join(f"{f'K = {k}':>16}" for k in counts))
    for method, rows in caught.items():
        mean, spread = 100 * np.mean(rows, 0), 100 * np.std(rows, 0, ddof=1)
        cells = "".join(f"{f'{m:.1f} ± {s:.1f}':>16}" for m, s in zip(mean, spread, strict=True))
        print(f"{method:<14}{cells}")
    print(flush=True)


def chosen(
    method: str, sets: int, features: np.ndarray, labels: np.ndarray, confusion: np.ndarray, seed: int
) -> Budget:
    """Choose sets by a method; random sets have the sizes of those by PCA."""
    if method == "confusion":
        return from_confusion(confusion, sets)
    reducer = "pca" if method == "random" else method
    budget = Budgeter(sets, reducer=reducer, seed=seed).fit(features, labels).budget_
    return random_sets(budget.classes, like=budget, seed=seed) if method == "random" else budget


def trained(train: Split, classes: int, seed: int, epochs: int = 4) -> nn.Module:
    """Train a network of two convolutions (or two layers, for flat data) for a short time."""
    torch.manual_seed(seed)
    x, y = train
    if x.dim() == 2:
        body: list[nn.Module] = [nn.Linear(x.shape[1], 64), nn.ReLU()]
        width, epochs = 64, 20
    else:
        pooled = x.shape[-1] // 4
        body = [nn.Conv2d(x.shape[1], 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        body += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        body += [nn.Linear(32 * pooled**2, 128), nn.ReLU()]
        width = 128
    network = nn.Sequential(*body, nn.Linear(width, classes))
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(128):
            loss = nn.functional.cross_entropy(network(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network


@torch.no_grad()
def predictions(network: nn.Module, x: Tensor) -> np.ndarray:
    """Return the predicted classes."""
    return torch.cat([network(part).argmax(1) for part in x.split(500)]).numpy()


def digits() -> tuple[Split, Split]:
    """Load the digits of scikit-learn, two thirds of them for training."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x, y = torch.tensor(data.data / 16).float(), torch.tensor(data.target)
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return (x[rows[:1200]], y[rows[:1200]]), (x[rows[1200:]], y[rows[1200:]])


def idx(folder: str) -> tuple[Split, Split]:
    """Load MNIST or Fashion-MNIST."""

    def part(prefix: str, most: int) -> Split:
        raw = DATA / folder / "raw"
        with gzip.open(raw / f"{prefix}-images-idx3-ubyte.gz") as file:
            x = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)[:most]
        with gzip.open(raw / f"{prefix}-labels-idx1-ubyte.gz") as file:
            y = np.frombuffer(file.read(), np.uint8, offset=8)[:most]
        return torch.tensor(x).float() / 255, torch.tensor(y).long()

    return part("train", TRAIN), part("t10k", 10_000)


def npz(train: str, test: str = "") -> tuple[Split, Split]:
    """Load colour images; without a test file, every fifth image is held out for testing."""

    def part(name: str) -> Split:
        with np.load(DATA / f"{name}.npz") as file:
            x, y = torch.tensor(file["images"]), torch.tensor(file["labels"]).long()
        return x.permute(0, 3, 1, 2).float() / 255, y

    x, y = part(train)
    if test:
        return (x[:TRAIN], y[:TRAIN]), part(test)
    held = torch.arange(len(x)) % 5 == 0
    return (x[~held], y[~held]), (x[held], y[held])


SETS: dict[str, Callable[[], tuple[Split, Split]]] = {
    "digits": digits,
    "MNIST": lambda: idx("MNIST"),
    "Fashion-MNIST": lambda: idx("FashionMNIST"),
    "CIFAR-10": lambda: npz("cifar10-train", "cifar10-test"),
    "Intel": lambda: npz("intel-train", "intel-test"),
    "CIFAR-100": lambda: npz("cifar100-test"),
}

if __name__ == "__main__":
    main()
