"""The command line with a torchvision that was built for another torch."""

import csv
import os
import subprocess
import sys

import numpy as np
import torch

from randomset.training.augmentation import rand_augmented


def run(*arguments, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANDOMSET_CACHE": str(cwd / "cache")}
    command = [sys.executable, "-m", "randomset", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)


def test_a_pretrained_backbone_end_to_end(tmp_path):
    """Bright and dark squares: cached features, training of the head, evaluation and prediction."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = rng.integers(0, 60, (60, 16, 16, 3)) + 80 * labels[:, None, None, None]
    np.savez(tmp_path / "squares.npz", images=images.astype(np.uint8), labels=labels)
    options = ("--backbone", "timm:tf_efficientnet_lite0", "--weights", "default", "--freeze")
    out = run("train", "squares.npz", *options, "--size", 64, "--sets", 3, "--epochs", 10, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "Computing features" in out.stdout
    assert "Training a plain network" not in out.stdout
    out = run("evaluate", "run", "--ood", "digits", "--no-figures", "--no-sweeps", cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "accuracy 100" in out.stdout
    out = run("predict", "run", "squares.npz", cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    rows = list(csv.DictReader(out.stdout.splitlines()))
    correct = [row["label"] == str(label) for row, label in zip(rows, labels, strict=True)]
    assert sum(correct) >= 57


def test_training_from_scratch(tmp_path):
    out = run("train", "digits", "--backbone", "timm:resnet10t", "--epochs", 1, "--sets", 5, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "Chose Budget(10 classes, 5 sets" in out.stdout


def test_randaugment_is_repeatable():
    pixels = torch.randint(0, 256, (20, 3, 16, 16), dtype=torch.uint8)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        found.append(rand_augmented(pixels))
    assert torch.equal(*found)
    assert (found[0] != pixels).flatten(1).any(1).sum() > 10  # some transforms change nothing
    assert rand_augmented(pixels / 255).dtype == torch.float32


def test_training_with_randaugment(tmp_path):
    options = ("--augment", "randaugment+mixup", "--epochs", 1, "--sets", 5)
    out = run("train", "digits", *options, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
