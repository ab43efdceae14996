"""What each part of `fast_cnn` and of the recipe "speed" is worth, one change at a time.

Softmax networks are trained on a part of the training images, and measured on 5,000 others of them; the
test data are not read. Each row: the accuracy of the predictions, the same with the mean features of each
image and its mirror image (`--mirror` of `randomset train`), and the CPU seconds of the training.

Run: python -m benchmarks.fast_training [--data cifar10] [--width 16] [--seeds 3] [--only NAME NAME]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn

import randomset as rs
from randomset import backbones
from randomset.backbones import Standardise, whiten
from randomset.data import load_source
from randomset.models import Softmax

HELD = 5000

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "AdamW, 3e-3, for all weights": {"recipe": {"optimizer": "adamw", "learning_rate": 3e-3}},
    "learning rate ÷ 2": {"recipe": {"learning_rate": 2.5e-3}},
    "learning rate × 2": {"recipe": {"learning_rate": 1e-2}},
    "label smoothing 0.2": {"recipe": {"label_smoothing": 0.2}},
    "no label smoothing": {"recipe": {"label_smoothing": 0.0}},
    "not whitened": {"whiten": False},
    "not started as the identity": {"identity": False},
    "normalisation with a trained scale": {"scale": True},
    "ReLU instead of GELU": {"activation": nn.ReLU},
    "one-cycle schedule": {"recipe": {"schedule": "one-cycle"}},
    "batches of 1,024": {"recipe": {"batch_size": 1024}},
    "batches of 256": {"recipe": {"batch_size": 256}},
    "no shifts": {"recipe": {"shift": 0.0}},
    "no flips": {"recipe": {"flip": False}},
}
"""Changes by name: fields of the recipe, and parts of the network."""


def network(change: dict[str, Any], images: Tensor, classes: tuple[str, ...], width: int) -> Softmax:
    """Build a network with one change."""
    backbone = backbones.fast_cnn(images.shape[1], width)
    standardise = Standardise.from_data(images)
    if change.get("whiten", True):
        whiten(backbone, images, standardise)
    for module in list(backbone.modules()):
        if isinstance(module, nn.Conv2d) and not change.get("identity", True):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, nn.BatchNorm2d) and change.get("scale"):
            module.weight.requires_grad_()
        if isinstance(module, nn.Sequential) and "activation" in change:
            for i, layer in enumerate(module):
                if isinstance(layer, nn.GELU):
                    module[i] = change["activation"]()
    return Softmax(backbone, classes, preprocess=standardise)


def accuracy(model: Softmax, images: Tensor, labels: Tensor) -> float:
    """Return the share of correct predictions in per cent."""
    return 100 * (model.predict(images, batch_size=500).labels == labels).float().mean().item()


def measured(
    change: dict[str, Any], source: Any, options: argparse.Namespace, seed: int
) -> tuple[float, ...]:
    """Train once; return both accuracies and the CPU seconds."""
    order = torch.randperm(len(source.inputs), generator=torch.Generator().manual_seed(0))
    held, rows = order[:HELD], order[HELD : HELD + options.samples]
    images, labels = source.inputs[rows], source.labels[rows]
    recipe = rs.Recipe.named("speed", epochs=options.epochs, **change.get("recipe", {}))
    torch.manual_seed(seed)
    model = network(change, images, source.classes, options.width)
    start = time.process_time()
    rs.fit(model, (images, labels), recipe=recipe, seed=seed, progress=False)
    seconds = time.process_time() - start
    plain = accuracy(model, source.inputs[held], source.labels[held])
    model.backbone = backbones.mirrored(model.backbone).eval()  # type: ignore[arg-type]
    return plain, accuracy(model, source.inputs[held], source.labels[held]), seconds


def main() -> None:
    """Print one row per variant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--samples", type=int, default=12500)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()
    source = load_source(options.data)
    print("| change | accuracy, % | mirrored, % | CPU seconds |\n|---|---|---|---|")
    for name in options.only:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        rows = [measured(VARIANTS[name], source, options, seed) for seed in seeds]
        cells = []
        for values, form in zip(zip(*rows, strict=True), ("{:.2f}", "{:.2f}", "{:.0f}"), strict=True):
            spread = f" ± {form.format(statistics.stdev(values))}" if len(values) > 1 else ""
            cells.append(form.format(statistics.mean(values)) + spread)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
