"""Ablations of a head on a frozen encoder, one change at a time, judged on validation data.

The test rows of each seed are not used: one part of the rest evaluates, another calibrates. Features are
computed once and reused.

Run: python -m benchmarks.frozen_head --backbone hf:FOLDER
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from randomset import Budget, RandomSetLoss, RandomSetNetwork
from randomset.backbones.hugging_face import load_tokenizer, tokenize
from randomset.backbones.inputs import Standardise
from randomset.data import Source, load_source
from randomset.evaluation import evaluate
from randomset.models import Softmax
from randomset.models.set_selection import all_sets
from randomset.training.fitting import fit
from randomset.training.preparation import backbone_for, frozen_features

Change = dict[str, Any]
VARIANTS: dict[str, Change] = {
    "softmax": {"softmax": True},
    "random-set": {},
    "features as they come": {"raw": True},
    "the same, 100 epochs": {"raw": True, "epochs": 100},
    "100 epochs": {"epochs": 100},
    "learning rate × 3": {"learning_rate": 1e-2},
    "learning rate ÷ 3": {"learning_rate": 1e-3},
    "no dropout": {"dropout": 0.0},
    "α = β = 0": {"alpha": 0.0},
    "α = β = 0.1": {"alpha": 0.1},
    "K = 0": {"singletons": True},
    "a hidden layer of 256": {"hidden": (256,)},
}


def measured(features: torch.Tensor, data: Source, change: Change, seed: int) -> dict[str, float]:
    """Train a head on one split, and evaluate it on held-out rows."""
    rest, _ = data.split(0.2, seed=seed)  # the others are test rows
    order = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))]
    held, calibrating, rows = order[:300], order[300:500], order[500:]
    if not change.get("raw"):
        features = Standardise.from_data(features, rows)(features)
    torch.manual_seed(seed)
    width = features.shape[1]
    model: nn.Module
    loss: nn.Module
    if change.get("softmax"):
        model, loss = Softmax(nn.Identity(), len(data.classes), in_features=width), nn.CrossEntropyLoss()
    else:
        budget = Budget.singletons(data.classes) if change.get("singletons") else all_sets(data.classes)
        options = {"dropout": change.get("dropout", 0.1), "hidden": change.get("hidden", ())}
        model = RandomSetNetwork(nn.Identity(), budget, in_features=width, **options)
        loss = RandomSetLoss(budget, change.get("alpha", 1e-3), change.get("alpha", 1e-3))

    def part(some: torch.Tensor) -> TensorDataset:
        return TensorDataset(features[some], data.labels[some])

    plan = {name: change[name] for name in ("epochs", "learning_rate") if name in change}
    settings: dict[str, Any] = {"batch_size": 64, "seed": seed, "reliability": "none", "progress": False}
    fit(model, part(rows), part(calibrating), loss=loss, **settings, **plan)
    known = Source("held", "features", features[held], data.labels[held], data.classes)
    return evaluate(model, known, progress=False).numbers["test"]


def main() -> None:
    """Print one row per variant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default="bbc")
    parser.add_argument("--backbone", required=True, help="hf:FOLDER or hf:NAME")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    data = load_source(arguments.source)
    tokens = tokenize(data.inputs, load_tokenizer(arguments.backbone.partition(":")[2]))
    encoder = backbone_for(arguments.backbone, tokens, weights="default").eval()
    features = frozen_features(encoder, None, tokens)
    print("| variant | accuracy, % | NLL, nats | ECE |\n|---|---|---|---|")
    for name, change in VARIANTS.items():
        rows = [measured(features, data, change, seed) for seed in range(arguments.seeds)]
        cells = []
        for column, scale, digits in (("accuracy", 100, 2), ("nll", 1, 3), ("ece", 1, 3)):
            values = [scale * row[column] for row in rows]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
