"""What augmentation and averaged weights are worth on a small set of photos, by validation accuracy.

Trains a random-set network, with all pairs of classes as its sets, on some of the images of each class, and
validates it on others. The test data are not used, so that settings can be chosen here.

Run: python -m benchmarks.augmentation --source intel-train.npz
"""

from __future__ import annotations

import argparse
import itertools
import statistics

import torch

from randomset import Budget
from randomset._core.checks import stratified_parts
from randomset.data import Source, load_source
from randomset.training import TrainConfig, train

SETTINGS = ("none", "photos", "flip", "mixup", "photos+mixup", "flip+shift", "none,0.99", "photos,0.99")


def accuracy(args: argparse.Namespace, data: Source, setting: str, seed: int) -> float:
    """Return the validation accuracy in per cent; a setting is an augmentation, perhaps with a decay."""
    augment, _, decay = setting.partition(",")
    _, val, rows = map(torch.from_numpy, stratified_parts(data.labels, [args.val, args.samples], seed))
    config = TrainConfig(
        backbone=args.backbone,
        epochs=args.epochs,
        augment=augment,
        ema=float(decay) if decay else None,
        reliability="none",
        seed=seed,
    )
    budget = Budget.from_sets(itertools.combinations(data.classes, 2), data.classes)
    options = {"check_val_every_n_epoch": args.epochs, "progress": False}
    tensors = data.inputs, data.labels, data.classes
    result = train(config, *tensors, rows=rows, val_rows=val, budget=budget, **options)
    assert result.fit is not None
    return 100 * result.fit.last["val_accuracy"]


def main() -> None:
    """Print one row for each setting."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", required=True, help="labelled images, as for `randomset train`")
    parser.add_argument("--samples", type=int, default=1200, help="images to train on")
    parser.add_argument("--val", type=int, default=3000, help="images to validate on")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--backbone", default="small_cnn")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--settings", nargs="+", default=SETTINGS, metavar="AUGMENT[,DECAY]")
    args = parser.parse_args()
    data = load_source(args.source, size=(args.size, args.size))
    print("| augmentation | validation accuracy, % |\n|---|---|")
    for setting in args.settings:
        found = [accuracy(args, data, setting, seed) for seed in range(args.seeds)]
        spread = statistics.stdev(found) if len(found) > 1 else 0.0
        print(
            f"| {setting.replace(',', ', ema ')} | {statistics.mean(found):.1f} ± {spread:.1f} |", flush=True
        )


if __name__ == "__main__":
    main()
