"""How the default reliability was chosen: variants on known data alone, with some classes left out.

For each data set and seed, a network is trained without some of its classes, which then play the unknown. In
breast cancer, which has two classes, rows that mix two samples play it. Every variant is fitted to the same
networks. AUROC is of the left-out classes, by the entropy and by the credal width; NLL and ECE are those of
known test inputs relative to no reliability. Neither the unknown data nor the test data of published results
are used.

Run: python -m benchmarks.left_out FOLDER (the features of `benchmarks.detection` are in FOLDER)
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from torch import Tensor, nn

import randomset as rs
from benchmarks.detection import _features, _split, _Standardised
from randomset import backbones
from randomset.data import load_source
from randomset.evaluation.metrics import calibration_error, detection, negative_log_likelihood
from randomset.models import reliability, reliability_fitting

LEFT_OUT: dict[str, list[tuple[int, ...]]] = {
    "digits": [(8, 9), (0, 1), (3, 5)],
    "wine": [(0,), (1,), (2,)],
    "iris": [(0,), (1,), (2,)],
    "breast cancer": [(), (), ()],
    "BBC": [(0,), (2,), (4,)],
    "Imagenette, frozen": [(0, 1, 2), (3, 4, 5), (6, 7, 8)],
    "Intel, frozen": [(0, 1), (2, 3), (4, 5)],
    "Intel": [(0, 1), (2, 3), (4, 5)],
    "MNIST": [(8, 9), (3, 5), (2, 7)],
    "CIFAR-10": [(3, 7), (0, 9), (2, 8)],
}
TABLES: dict[str, Any] = {
    "wine": load_wine,
    "iris": load_iris,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
}
MOST = 17000  # samples

Change = dict[str, Any]
VARIANTS: dict[str, tuple[str, Change, Change]] = {
    "no reliability": ("none", {}, {}),
    "default": ("auto", {}, {}),
    "neighbours": ("neighbours", {}, {}),
    "gaussians": ("gaussians", {}, {}),
    "no sharpening": ("auto", {"_SHARPENINGS": (1.0,)}, {}),
    "sharpening to 0.7": ("auto", {"_SHARPENINGS": (1.0, 0.95, 0.9, 0.85, 0.8, 0.7)}, {}),
    "no prior weight": ("auto", {"_PRIOR_WEIGHTS": (0.0,)}, {}),
    "prior weight up to 8": ("auto", {"_PRIOR_WEIGHTS": (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.0)}, {}),
    "no widening": ("auto", {"_IMPRECISION": 0.0}, {}),
    "widening κ = 5/√n": ("auto", {"_IMPRECISION": 5.0}, {}),
    "widening κ = 20/√n": ("auto", {"_IMPRECISION": 20.0}, {}),
    "NLL × 1.02": ("auto", {"_LIMITS": ((1.015, 0.004, 0.0), (1.02, 0.005, 0.25))}, {}),
    "NLL × 1.002": ("auto", {"_LIMITS": ((1.001, 0.001, 0.0), (1.002, 0.002, 0.25))}, {}),
    "no allowance for few samples": ("auto", {"_FEW": 0}, {}),
    "half a sample of any number discounted": ("auto", {"_FEW": 10**9}, {}),
    "one outlier": ("auto", {"_OUTLIERS": 10**9}, {}),
    "1 + √m / 5 outliers": ("auto", {"_OUTLIERS": 5}, {}),
    "slope 1": ("auto", {}, {"_SLOPE": 1.0}),
    "slope 4": ("auto", {}, {"_SLOPE": 4.0}),
    "length × 4": ("auto", {}, {"_LENGTH": 4.0}),
    "1st neighbour": ("auto", {}, {"_NEIGHBOURS": 1}),
    "50th neighbour": ("auto", {}, {"_NEIGHBOURS": 50}),
    "bank of 1,024": ("auto", {"MAX_ROWS": 1024}, {"MAX_ROWS": 1024}),
    "shrinkage 0.1": ("auto", {}, {"_SHRINKAGE": 0.1}),
    "stated error ignored": ("auto", {}, {"_CERTAIN": 0.5}),
}


def _mixed(inputs: Tensor) -> Tensor:
    """Take each feature from one of two random rows."""
    generator = torch.Generator().manual_seed(6)
    other = inputs[torch.randperm(len(inputs), generator=generator)]
    return torch.where(torch.rand(inputs.shape, generator=generator) < 0.5, inputs, other)


def _all_data(name: str, folder: Path) -> tuple[Tensor, Tensor]:
    if name in TABLES:
        inputs, labels = TABLES[name](return_X_y=True)
        return torch.from_numpy(inputs).float(), torch.from_numpy(labels).long()
    frozen = {"BBC": "bbc", "Imagenette, frozen": "eff-imagenette-val", "Intel, frozen": "eff-intel-train"}
    if name in frozen:
        return _features(folder, frozen[name])
    source = load_source({"Intel": "intel", "MNIST": "mnist", "CIFAR-10": "cifar10"}[name], split="train")
    images = source.inputs.float() / 255
    return nn.functional.avg_pool2d(images, 2) if name == "Intel" else images, source.labels


def trained(name: str, seed: int, folder: Path) -> tuple[rs.RandomSetNetwork, Any, Any, Any, Tensor]:
    """Train a network without a reliability; return it with training, validation, test and left-out data."""
    inputs, labels = _all_data(name, folder)
    out = torch.tensor(LEFT_OUT[name][seed], dtype=torch.long)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    rows = order[~torch.isin(labels[order], out)][:MOST]
    names, targets = labels[rows].unique(return_inverse=True)
    shares = (0.5, 0.25) if len(rows) < 1000 else (0.7, 0.15)
    train, val, test = _split(inputs[rows], targets, seed, shares)
    unknown = inputs[torch.isin(labels, out)][:1500] if len(out) else _mixed(test[0])
    width = inputs.shape[1]

    def backbone() -> nn.Module:
        if name in TABLES:
            return nn.Sequential(_Standardised(train[0]), backbones.mlp(width))
        return _Standardised(train[0]) if inputs.dim() == 2 else backbones.small_cnn(width, inputs.shape[-1])

    epochs = {"MNIST": 4, "CIFAR-10": 8, "Intel": 8, "BBC": 30}.get(name, 10 if inputs.dim() == 2 else 20)
    epochs = 20 if name in TABLES else epochs
    torch.manual_seed(seed)
    features: Any = {"in_features": backbones.mlp(width).num_features} if name in TABLES else {}
    budget = rs.Budget.powerset(len(names)) if len(names) <= 6 else _budget(backbone, train)
    network = rs.RandomSetNetwork(backbone(), budget, **features)
    options: Any = {"batch_size": 32 if name in TABLES else 64, "seed": seed, "progress": False}
    rs.fit(network, train, val, epochs=epochs, reliability="none", **options)
    return network, train, val, test, unknown


def _budget(backbone: Any, train: tuple[Tensor, Tensor]) -> rs.Budget:
    """Choose 20 sets on the features of an untrained backbone, which is enough to compare reliabilities."""
    with torch.inference_mode():
        features = backbone().eval()(train[0][:3000]).flatten(1)
    return rs.Budgeter(num_sets=20, reducer="pca").fit(features.numpy(), train[1][:3000].numpy()).budget_


@contextmanager
def _changed(fitting: Change, module: Change) -> Iterator[None]:
    """Replace constants of the two modules."""
    with ExitStack() as stack:
        for owner, change in ((reliability_fitting, fitting), (reliability, module)):
            for name, value in change.items():
                stack.enter_context(mock.patch.object(owner, name, value))
        yield


def measured(name: str, seed: int, folder: Path) -> dict[str, dict[str, float]]:
    """Return the metrics of every variant."""
    network, train, val, test, unknown = trained(name, seed, folder)
    plain = network.predict(test[0]).pignistic
    before = negative_log_likelihood(plain, test[1]), calibration_error(plain, test[1])
    rows = {}
    for variant, (kind, fitting, module) in VARIANTS.items():
        network.reliability = None
        with _changed(fitting, module):
            if kind != "none":
                network.fit_reliability(train, val, kind=kind, progress=False)
            known, other = network.predict(test[0]), network.predict(unknown)
        rows[variant] = {
            "entropy": 100 * detection(known.entropy, other.entropy).auroc,
            "width": 100 * detection(known.credal_width, other.credal_width).auroc,
            "nll": negative_log_likelihood(known.pignistic, test[1]) - before[0],
            "ece": calibration_error(known.pignistic, test[1]) - before[1],
        }
    return rows


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", default=";".join(LEFT_OUT))
    arguments = parser.parse_args()
    names, found = arguments.tasks.split(";"), {}
    for name in names:
        rows = []
        for seed in range(len(LEFT_OUT[name])):
            path = arguments.folder / f"left-out-{name}-{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(measured(name, seed, arguments.folder), indent=1))
                print(f"{name}, seed {seed}: done", flush=True)
            rows.append(json.loads(path.read_text()))
        found[name] = rows
    print(f"\n| variant | {' | '.join(names)} | mean | NLL | ECE |\n{'|---' * (len(names) + 4)}|")
    for variant in VARIANTS:
        means = {
            key: [statistics.mean(row[variant][key] for row in found[name]) for name in names]
            for key in ("entropy", "width", "nll", "ece")
        }
        cells = [f"{e:.1f} / {w:.1f}" for e, w in zip(means["entropy"], means["width"], strict=True)]
        mean = f"{statistics.mean(means['entropy']):.2f} / {statistics.mean(means['width']):.2f}"
        cost = f"{statistics.mean(means['nll']):+.4f} | {statistics.mean(means['ece']):+.4f}"
        print(f"| {variant} | {' | '.join(cells)} | {mean} | {cost} |")


if __name__ == "__main__":
    main()
