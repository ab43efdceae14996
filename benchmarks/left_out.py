"""How the default reliability was chosen: variants on known data alone, with some classes left out.

For each data set and seed, a network is trained as `randomset train` does, without some of its classes, which
then play the unknown. So do inputs that are made from known test inputs: images cut into 16 tiles in another
order, images with another phase spectrum, negatives, rows of tables ten standard deviations away, and rows
that mix two samples. Every variant is fitted to the same networks. AUROC is by the entropy and by the credal
width; NLL and ECE are those of known test inputs relative to no reliability. Neither the unknown data nor the
test data of published results are used.

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
from benchmarks.detection import Task, _features, _split, _Standardised, random_set
from randomset.data import load_source
from randomset.evaluation.metrics import calibration_error, detection, negative_log_likelihood
from randomset.models import reliability, reliability_fitting
from randomset.training import TrainConfig, train

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
    "CIFAR-10, fast": [(3, 7), (0, 9), (2, 8)],
}
SETTINGS: dict[str, Any] = {
    "MNIST": {"epochs": 6},
    "Intel": {"epochs": 10},
    "CIFAR-10": {"epochs": 10},
    "CIFAR-10, fast": {"epochs": 9, "backbone": "fast_cnn", "width": 32, "recipe": "speed"},
}
TABLES: dict[str, Any] = {
    "wine": load_wine,
    "iris": load_iris,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
}
MOST, MOST_FAST = 17000, 30000  # samples

Change = dict[str, Any]
Parts = dict[str, Tensor]
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
    "NLL × 1.012": ("auto", {"_LIMITS": ((1.008, 0.002, 0.0), (1.012, 0.004, 0.25))}, {}),
    "NLL × 1.004": ("auto", {"_LIMITS": ((1.002, 0.001, 0.0), (1.004, 0.002, 0.05))}, {}),
    "no allowance for few samples": ("auto", {"_FEW": 0}, {}),
    "half a sample of any number discounted": ("auto", {"_FEW": 10**9}, {}),
    "outliers count": ("auto", {"_OUTLYING": float("inf")}, {}),
    "slope 1": ("auto", {}, {"_SLOPE": 1.0}),
    "slope 4": ("auto", {}, {"_SLOPE": 4.0}),
    "length × 4": ("auto", {}, {"_LENGTH": 4.0}),
    "1st neighbour": ("auto", {}, {"_NEIGHBOURS": 1}),
    "50th neighbour": ("auto", {}, {"_NEIGHBOURS": 50}),
    "bank of 256": ("auto", {}, {"MAX_ROWS": 256}),
    "bank of 4,096": ("auto", {}, {"_MIN_ROWS": 4096}),
    "shrinkage 0.1": ("auto", {}, {"_SHRINKAGE": 0.1}),
    "the mean as the origin": ("auto", {}, {"_ONE_SIDED": float("inf")}),
}


# -- inputs that play the unknown -------------------------------------------------------------------


def _mixed(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Take each feature from one of two random rows."""
    other = rows[torch.randperm(len(rows), generator=generator)]
    return torch.where(torch.rand(rows.shape, generator=generator) < 0.5, rows, other)


def _tiles(images: Tensor, generator: torch.Generator) -> Tensor:
    """Put 4 × 4 tiles of each image in a random order."""
    count, channels, height, width = images.shape
    side = height // 4
    tiles = images.unfold(2, side, side).unfold(3, side, side).reshape(count, channels, 16, side, side)
    order = torch.rand(count, 16, generator=generator).argsort(1)
    tiles = tiles.gather(2, order[:, None, :, None, None].expand_as(tiles))
    parts = tiles.view(count, channels, 4, 4, side, side).permute(0, 1, 2, 4, 3, 5)
    return parts.reshape(count, channels, height, width)


def _scrambled(images: Tensor, generator: torch.Generator) -> Tensor:
    """Give each image the phases of noise: it keeps its spectrum and loses its shapes."""
    noise = torch.rand(len(images), 1, *images.shape[2:], generator=generator)
    phase = torch.fft.rfft2(noise).angle()
    mean = images.mean((2, 3), keepdim=True)
    found = torch.fft.irfft2(torch.fft.rfft2(images).abs() * torch.exp(1j * phase), s=images.shape[2:])
    return (found - found.mean((2, 3), keepdim=True) + mean).clamp(0, 1)


def made_from(name: str, known: Tensor, spread: Tensor, seed: int) -> dict[str, Tensor]:
    """Make unknown inputs from known ones; `spread` holds the standard deviations of columns."""
    generator = torch.Generator().manual_seed(seed)
    if known.dim() == 4:
        images = known[:1500]
        shapes = {"tiles": _tiles(images, generator), "scrambled": _scrambled(images, generator)}
        return {**shapes, "negative": 1 - images}
    if name in TABLES:
        sign = torch.randn(known.shape, generator=generator).sign()
        return {"far": known + 10 * spread * sign, "mixed": _mixed(known, generator)}
    return {}


# -- networks -------------------------------------------------------------------------------------


def _all_data(name: str, folder: Path) -> tuple[Tensor, Tensor]:
    if name in TABLES:
        inputs, labels = TABLES[name](return_X_y=True)
        return torch.from_numpy(inputs).float(), torch.from_numpy(labels).long()
    frozen = {"BBC": "bbc", "Imagenette, frozen": "eff-imagenette-val", "Intel, frozen": "eff-intel-train"}
    if name in frozen:
        return _features(folder, frozen[name])
    source = load_source(name.split(",")[0].lower().replace("-", ""), split="train")
    images = source.inputs.float() / 255
    return nn.functional.avg_pool2d(images, 2) if name == "Intel" else images, source.labels


def trained(
    name: str, seed: int, folder: Path
) -> tuple[rs.RandomSetNetwork, Any, Any, Any, dict[str, Tensor]]:
    """Train a network without a reliability; return it with training, validation, test and unknown data."""
    inputs, labels = _all_data(name, folder)
    out = torch.tensor(LEFT_OUT[name][seed], dtype=torch.long)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    rows = order[~torch.isin(labels[order], out)][: MOST_FAST if name.endswith("fast") else MOST]
    names, targets = labels[rows].unique(return_inverse=True)
    shares = (0.5, 0.25) if len(rows) < 1000 else (0.7, 0.15)
    known, val, test = _split(inputs[rows], targets, seed, shares)
    unknown = {"left out": inputs[torch.isin(labels, out)][:1500]} if len(out) else {}
    unknown |= made_from(name, test[0], known[0].std(0), seed)
    path, frozen = folder / f"left-out-{name}-{seed}", inputs.dim() == 2 and name not in TABLES
    if path.exists():
        network = rs.RandomSetNetwork.load(path, _Standardised(known[0]) if frozen else None)
    elif frozen:
        work = Task(known, val, test, {}, lambda: _Standardised(known[0]), 30 if name == "BBC" else 10, 64)
        network = random_set(work, seed)
    else:
        config = TrainConfig(seed=seed, reliability="none", **SETTINGS.get(name, {"epochs": 30}))
        network = train(config, *known, tuple(map(str, names.tolist())), val, progress=False).model
    network.save(path)
    return network, known, val, test, unknown


@contextmanager
def _changed(fitting: Change, module: Change) -> Iterator[None]:
    """Replace constants of the two modules."""
    with ExitStack() as stack:
        for owner, change in ((reliability_fitting, fitting), (reliability, module)):
            for name, value in change.items():
                stack.enter_context(mock.patch.object(owner, name, value))
        yield


def measured(name: str, seed: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the metrics of every variant."""
    network, known_data, val, test, unknown = trained(name, seed, folder)
    plain = network.predict(test[0]).pignistic
    before = negative_log_likelihood(plain, test[1]), calibration_error(plain, test[1])
    rows = {}
    for variant, (kind, fitting, module) in VARIANTS.items():
        network.reliability = None
        with _changed(fitting, module):
            if kind != "none":
                network.fit_reliability(known_data, val, kind=kind, progress=False)
            known = network.predict(test[0])
            others = {part: network.predict(inputs) for part, inputs in unknown.items()}
        rows[variant] = {
            "entropy": _areas(known.entropy, {part: other.entropy for part, other in others.items()}),
            "width": _areas(known.credal_width, {part: other.credal_width for part, other in others.items()}),
            "nll": negative_log_likelihood(known.pignistic, test[1]) - before[0],
            "ece": calibration_error(known.pignistic, test[1]) - before[1],
        }
    return rows


def _areas(known: Tensor, unknown: dict[str, Tensor]) -> dict[str, float]:
    """Return AUROC of left-out classes and the mean AUROC of inputs that were made."""
    found = {part: 100 * detection(known, other).auroc for part, other in unknown.items()}
    made = [area for part, area in found.items() if part != "left out"]
    areas = {"left out": found["left out"]} if "left out" in found else {}
    return areas | ({"made": statistics.mean(made)} if made else {})


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
    for kind in ("left out", "made"):
        used = [name for name in names if kind in found[name][0]["default"]["entropy"]]
        if not used:
            continue
        print(f"\n| {kind} | {' | '.join(used)} | mean | NLL | ECE |\n{'|---' * (len(used) + 4)}|")
        for variant in VARIANTS:
            means = {
                key: [statistics.mean(row[variant][key][kind] for row in found[name]) for name in used]
                for key in ("entropy", "width")
            }
            cells = [f"{e:.1f} / {w:.1f}" for e, w in zip(means["entropy"], means["width"], strict=True)]
            mean = f"{statistics.mean(means['entropy']):.2f} / {statistics.mean(means['width']):.2f}"
            costs = [
                statistics.mean(statistics.mean(row[variant][key] for row in found[name]) for name in used)
                for key in ("nll", "ece")
            ]
            cost = " | ".join(f"{value:+.4f}" for value in costs)
            print(f"| {variant} | {' | '.join(cells)} | {mean} | {cost} |")


if __name__ == "__main__":
    main()
