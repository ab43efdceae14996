"""A thousand classes with 3,000 sets: budget, training, prediction, evaluation; time and memory of each.

The features are random: centres in 64 dimensions lie in groups of ten, so that neighbours overlap. A softmax
network on the same features serves as baseline; steps of both are timed in turns. Inputs of a hundred more
centres are unknown. Memory is the peak of the process, including torch and the data.

Run: python -m benchmarks.many_classes
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.families import ratios
from benchmarks.training import step
from randomset import Budgeter, RandomSetLoss, RandomSetNetwork, fit
from randomset.backbones.base import mlp
from randomset.evaluation import evaluate


def peak() -> float:
    """Return the peak memory of this process in GB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 2**20 if found else float("nan")


def drawn(classes: int, samples: int, dimensions: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw features of classes whose centres lie in groups of ten."""
    generator = torch.Generator().manual_seed(0)
    groups = 3 * torch.randn(-(-classes // 10), dimensions, generator=generator)
    centres = groups.repeat_interleave(10, 0)[:classes]
    centres = centres + 0.8 * torch.randn(classes, dimensions, generator=generator)
    labels = torch.arange(classes).repeat_interleave(samples)
    generator.manual_seed(seed)
    return centres[labels] + torch.randn(len(labels), dimensions, generator=generator), labels


def main() -> None:
    """Run every stage and print its time and memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--sets", type=int, default=3000)
    parser.add_argument("--samples", type=int, default=50, help="samples per class")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    arguments = parser.parse_args()
    known, more = arguments.classes, arguments.classes // 10
    inputs, labels = drawn(known + more, arguments.samples, 64, seed=1)
    tested, truth = drawn(known + more, 10, 64, seed=2)
    train, test = labels < known, truth < known
    print(f"before: {peak():.2f} GB")
    start = time.perf_counter()

    def report(what: str) -> None:
        nonlocal start
        print(f"{what}: {time.perf_counter() - start:.1f} s, {peak():.2f} GB", flush=True)
        start = time.perf_counter()

    budgeter = Budgeter(arguments.sets, seed=0, progress=False)
    budget = budgeter.fit(inputs[train].numpy(), labels[train].numpy()).budget_
    report(f"budget of {len(budget)} sets")
    torch.manual_seed(0)
    network = RandomSetNetwork(mlp(64, (512,)), budget)
    plain = nn.Sequential(mlp(64, (512,)), nn.Linear(512, known))
    options = {"epochs": arguments.epochs, "batch_size": arguments.batch, "progress": False}
    fit(network, (inputs[train], labels[train]), **options)
    report(f"training, {arguments.epochs} epochs of {int(train.sum())} samples")
    network.predict(tested, batch_size=arguments.batch)
    report(f"prediction of {len(tested)} samples")
    result = evaluate(network, (tested[test], truth[test]), {"more classes": tested[~test]})
    report("evaluation")
    print(result.summary)
    fit(plain, (inputs[train], labels[train]), loss=nn.CrossEntropyLoss(), **options)
    report("training of softmax")
    print(evaluate(plain, (tested[test], truth[test]), {"more classes": tested[~test]}).summary)
    batch, right = inputs[train][: arguments.batch], labels[train][: arguments.batch]
    low, middle, high, _, seconds = ratios(
        step(plain.train(), nn.CrossEntropyLoss(), batch, right),
        step(network.train(), RandomSetLoss(budget), batch, right),
        pairs=20,
    )
    print(
        f"a step of {arguments.batch}: {1e3 * middle * seconds:.0f} ms, {middle:.2f} times softmax's "
        f"{1e3 * seconds:.0f} ms (quartiles {low:.2f} to {high:.2f})"
    )


if __name__ == "__main__":
    main()
