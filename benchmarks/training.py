"""One training step and one prediction of a random-set network against the same backbone with softmax.

Claim: on the CIFAR ResNet-18, at (10 classes, 20 sets) and (1000, 3000), a training step costs at most 1.05
times that of the softmax network, and a prediction, with masses, pignistic probability, entropy and credal
width, at most 1.03 times (the paper measured 1.33 and 1.00). The networks take turns, call by call, and each
pair gives a ratio, so that other load on the machine cancels out.

Run: python -m benchmarks.training
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.families import neighbouring_sets, ratios
from randomset import RandomSetLoss, RandomSetNetwork
from randomset.backbones.base import resnet

SIZES = [(10, 20), (1000, 3000)]


def plain_network(num_classes: int) -> nn.Module:
    """Build the softmax network."""
    backbone = resnet(18)
    return nn.Sequential(backbone, nn.Linear(backbone.num_features, num_classes))


def step(network: nn.Module, loss: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], object]:
    """Return a function that takes a training step with Adam."""
    optimiser = torch.optim.Adam(network.parameters(), 1e-4)

    def run() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss(network(images), labels).backward()
        optimiser.step()

    return run


def softmax_prediction(network: nn.Module, images: Tensor) -> Callable[[], object]:
    """Return a function that predicts, with the entropy."""

    def run() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            probabilities = network(images).softmax(1)
            return probabilities.argmax(1), torch.special.entr(probabilities).sum(1)

    return run


def random_set_prediction(network: RandomSetNetwork, images: Tensor) -> Callable[[], object]:
    """Return a function that predicts, with masses and scores."""

    def run() -> tuple[Tensor, ...]:
        answer = network.predict(images, batch_size=len(images))
        return answer.mass, answer.labels, answer.entropy, answer.credal_width

    return run


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32, help="images per step and per prediction")
    parser.add_argument("--pairs", type=int, default=40, help="number of timed pairs")
    arguments = parser.parse_args()
    print(f"CIFAR ResNet-18, {arguments.batch} images, {torch.get_num_threads()} threads")
    print("| classes, sets | what | softmax, s | median ratio | quartiles | ratio of the fastest |")
    print("|---|---|---|---|---|---|")
    for n, k in SIZES:
        torch.manual_seed(0)
        budget = neighbouring_sets(n, k)
        plain, network = plain_network(n), RandomSetNetwork(resnet(18), budget)
        images, labels = torch.randn(arguments.batch, 3, 32, 32), torch.randint(n, (arguments.batch,))
        pairs = {
            "training step": (
                step(plain.train(), nn.CrossEntropyLoss(), images, labels),
                step(network.train(), RandomSetLoss(budget), images, labels),
            ),
            "prediction": (
                softmax_prediction(plain, images),
                random_set_prediction(network, images),
            ),
        }
        for name, functions in pairs.items():
            plain.train(name == "training step")
            network.train(name == "training step")
            low, middle, high, fastest, time = ratios(*functions, pairs=arguments.pairs)
            spread = f"{low:.3f} to {high:.3f}"
            print(f"| {n}, {k} | {name} | {time:.3f} | {middle:.3f} | {spread} | {fastest:.3f} |", flush=True)


if __name__ == "__main__":
    main()
