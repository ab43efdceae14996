"""Set-valued labels: accuracy of random-set networks beside softmax networks, for several kinds of labels.

Every network has the same backbone and is trained on the same labels. "RS-NN" is trained as `randomset train`
does: its first half of the epochs as "softmax". "RS-NN, from scratch" is trained with sets from the start,
"RS-NN, literal" as well, and has `disambiguate=False`. "softmax" is trained with −log Σ p(c) over the classes
of the label, and "softmax, uniform" with the cross-entropy of a uniform distribution over them. The sets of
classes are chosen from the same labels: a sample counts for each of its classes.
The default loss was chosen on the validation part of the digits (`--part val`).

- half random: half of the labels contain a second class, drawn at random
- all random: every label does
- confusable: 80 % of the labels contain a second class, in 80 % of these the next one (4 for 3)
- each 30 %: every wrong class is in the label with a probability of 30 %, so that few labels are precise
- 20 % wrong: as "half random", but a fifth of the labels are one class, drawn at random: mostly a wrong one
- 3 or 5: these two digits always have the label {3, 5}, all others a precise one. A prediction in the label
  is correct; the credal width of inputs with this label follows in brackets.

Run: python -m benchmarks.partial_labels [--data mnist] [--epochs 10 30 60] [--seeds 3]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import warnings

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils.data import TensorDataset

import randomset as rs
from randomset import backbones
from randomset.data import load_source
from randomset.models import Softmax
from randomset.models.set_selection import ClassLoss
from randomset.training import TrainConfig, train

PATTERNS = ("half random", "all random", "confusable", "each 30 %", "20 % wrong", "3 or 5")
METHODS = ("RS-NN", "RS-NN, from scratch", "RS-NN, literal", "softmax", "softmax, uniform")
CLASSES = 10
NAMES = tuple("0123456789")


class UniformLoss(torch.nn.Module):
    """Cross-entropy with a uniform distribution over the classes of each label."""

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over the batch."""
        return torch.nn.functional.cross_entropy(outputs, labels / labels.sum(1, keepdim=True))


def data_of(name: str, part: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images and classes, then those of the validation or test part."""
    if name == "digits":
        digits = load_digits()
        images, labels = torch.tensor(digits.images[:, None]).float() / 16, torch.tensor(digits.target)
        ends = (1200, 1500) if part == "val" else (1500, len(labels))
        rows = torch.arange(*ends)
        return images[:1200], labels[:1200], images[rows], labels[rows]
    train = load_source("mnist", split="train")
    images, labels = train.inputs[:4000].float() / 255, train.labels[:4000]
    other = train if part == "val" else load_source("mnist", split="test")
    rows = torch.arange(4000, 9000) if part == "val" else torch.arange(len(other.labels))
    return images, labels, other.inputs[rows].float() / 255, other.labels[rows]


def label_sets(pattern: str, labels: Tensor, seed: int) -> Tensor:
    """Draw set-valued labels (n × N) for classes (n)."""
    generator = torch.Generator().manual_seed(seed)
    rows, count = torch.arange(len(labels)), len(labels)
    chance = torch.rand(count, generator=generator)
    second = (labels + torch.randint(1, CLASSES, (count,), generator=generator)) % CLASSES
    mask = one_hot(labels, CLASSES).bool()
    if pattern == "3 or 5":
        either = (labels == 3) | (labels == 5)
        mask[:, 3] |= either
        mask[:, 5] |= either
    elif pattern == "each 30 %":
        mask |= torch.rand(count, CLASSES, generator=generator) < 0.3
    else:
        share = {"half random": 0.5, "all random": 1.0, "confusable": 0.8, "20 % wrong": 0.5}[pattern]
        if pattern == "confusable":
            usual = torch.rand(count, generator=generator) < 0.8
            second = torch.where(usual, (labels + 1) % CLASSES, second)
        imprecise = rows[chance < share]
        mask[imprecise, second[imprecise]] = True
    if pattern == "20 % wrong":
        wrong = torch.rand(count, generator=generator) < 0.2
        drawn = torch.randint(CLASSES, (count,), generator=generator)
        mask[wrong] = one_hot(drawn[wrong], CLASSES).bool()
    return mask


def measured(
    data: tuple[Tensor, Tensor, Tensor, Tensor], pattern: str, method: str, epochs: int, seed: int
) -> tuple[float, float]:
    """Return the accuracy in per cent, and the credal width of inputs with an imprecise label."""
    images, labels, others, classes = data
    mask = label_sets(pattern, labels, seed)
    torch.manual_seed(seed)
    backbone = backbones.small_cnn(image_size=images.shape[-1])
    loss: torch.nn.Module
    network: rs.Classifier
    if method == "RS-NN":
        config = TrainConfig(epochs=epochs, batch_size=128, seed=seed)
        network = train(config, images, mask, NAMES, backbone=backbone, progress=False).model
    elif method.startswith("softmax"):
        network = Softmax(backbone, CLASSES)
        loss = UniformLoss() if "uniform" in method else ClassLoss()
    else:
        samples, codes = mask.nonzero(as_tuple=True)
        budgeter = rs.Budgeter(num_sets=20, reducer="pca", seed=seed)
        budget = budgeter.fit(images[samples].flatten(1).numpy(), codes.numpy()).budget_
        network = rs.RandomSetNetwork(backbone, budget)
        loss = rs.RandomSetLoss(budget, disambiguate="literal" not in method)
    if method != "RS-NN":
        rs.fit(network, TensorDataset(images, mask), epochs=epochs, loss=loss, seed=seed, progress=False)
    answer = network.predict(others)
    possible = label_sets(pattern, classes, 0) if pattern == "3 or 5" else one_hot(classes, CLASSES).bool()
    right = possible.gather(1, answer.probabilities.argmax(1, keepdim=True))
    imprecise = possible.sum(1) > 1
    width = answer.credal_width[imprecise].mean().item() if isinstance(answer, rs.RandomSet) else 0.0
    return 100 * right.double().mean().item(), width


def main() -> None:
    """Print one table row per pattern and number of epochs, as soon as it is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--part", choices=("val", "test"), default="test")
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=PATTERNS)
    parser.add_argument("--epochs", nargs="+", type=int, default=[10, 30, 60])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    data = data_of(arguments.data, arguments.part)
    print(f"| labels | epochs | {' | '.join(METHODS)} |\n|---|---{'|---' * len(METHODS)}|", flush=True)
    for pattern in arguments.patterns:
        for epochs in arguments.epochs:
            cells = []
            for method in METHODS:
                found = [measured(data, pattern, method, epochs, seed) for seed in range(arguments.seeds)]
                accuracies, widths = zip(*found, strict=True)
                cell = f"{statistics.mean(accuracies):.1f}"
                if arguments.seeds > 1:
                    cell += f" ± {statistics.stdev(accuracies):.1f}"
                if pattern == "3 or 5" and not method.startswith("softmax"):
                    cell += f" ({statistics.mean(widths):.2f})"
                cells.append(cell)
            print(f"| {pattern} | {epochs} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
