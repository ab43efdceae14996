"""Prediction with a reliability against the same backbone with softmax, and the time to fit a reliability.

Claim: fitting the reliability takes at most 5 % of a training of 30 epochs. A prediction is `predict` and the
reads of a user: labels, pignistic, lower and upper probabilities, credal width, entropy and reliability
against labels, probabilities and entropy of softmax. The aim is at most 1.10 times softmax's time on a
ResNet-18, for one image and for 256, and at most 1.5 times for one image on a tiny CNN. The networks share
one backbone and take turns, call by call, on one thread, and each call is compared with its two neighbours,
by the time of the process: other processes do not count.

Run: python -m benchmarks.reliability_cost
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.families import neighbouring_sets, ratios
from randomset import RandomSetNetwork, fit
from randomset.backbones import Backbone, resnet, small_cnn
from randomset.models import Softmax

CLASSES, SETS, EPOCHS = 10, 20, 30
# backbone, shape of an image, images in a call, timed pairs of calls
CASES: list[tuple[str, Callable[[], Backbone], tuple[int, int, int], int, int]] = [
    ("small_cnn", small_cnn, (1, 28, 28), 1, 300),
    ("small_cnn", small_cnn, (1, 28, 28), 256, 40),
    ("resnet18", lambda: resnet(18), (3, 32, 32), 1, 60),
    ("resnet18", lambda: resnet(18), (3, 64, 64), 1, 30),
    ("resnet18", lambda: resnet(18), (3, 32, 32), 256, 3),
]


def clusters(samples: int, width: int) -> tuple[Tensor, Tensor]:
    """Draw features of a Gaussian for each class, non-negative like those after a ReLU, and their labels."""
    means = torch.randn(CLASSES, width, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(CLASSES, (samples,))
    return (means[labels] + torch.randn(samples, width)).relu(), labels


def networks(backbone: Backbone) -> dict[str, RandomSetNetwork]:
    """Build random-set networks on a backbone, both calibrated, without and with a reliability.

    Their cost does not depend on what the backbone has learnt: head, temperature and reliability are fitted
    to synthetic features, as many as the reliability can use.
    """
    budget = neighbouring_sets(CLASSES, SETS)
    on_features = RandomSetNetwork(nn.Identity(), budget, in_features=backbone.num_features)
    train, val = clusters(20_000, backbone.num_features), clusters(1_000, backbone.num_features)
    fit(on_features, torch.utils.data.TensorDataset(*train), epochs=1, progress=False)
    on_features.calibrate(val)
    on_features.fit_reliability(train, val)
    found = {}
    for name, reliability in (("without", None), ("with", on_features.reliability)):
        network = RandomSetNetwork(backbone, budget)
        network.head, network.calibration, network.reliability = (
            on_features.head,
            on_features.calibration,
            reliability,
        )
        found[name] = network.eval()
    return found


def random_set_reads(network: RandomSetNetwork, images: Tensor) -> Callable[[], object]:
    """Return a function that predicts, and reads what a user reads."""

    def run() -> tuple[Tensor, ...]:
        answer = network.predict(images)
        bounds = answer.pignistic, answer.lower, answer.upper
        return answer.labels, *bounds, answer.credal_width, answer.entropy, answer.reliability

    return run


def softmax_reads(network: Softmax, images: Tensor) -> Callable[[], object]:
    """Return a function that predicts, and reads what softmax has."""

    def run() -> tuple[Tensor, ...]:
        answer = network.predict(images)
        return answer.labels, answer.probabilities, answer.scores["entropy"]

    return run


def prediction_rows(speed: float) -> Iterator[str]:
    """Measure the ratios of all cases; `speed` below 1 takes fewer pairs of calls."""
    for name, build, shape, batch, pairs in CASES:
        torch.manual_seed(0)
        backbone, images = build().eval(), torch.randn(batch, *shape)
        base = softmax_reads(Softmax(backbone, CLASSES).eval(), images)
        cells, seconds = [], 0.0
        for network in networks(backbone).values():
            other = random_set_reads(network, images)
            count = max(3, round(pairs * speed))
            low, middle, high, _, seconds = ratios(base, other, count, time.process_time)
            cells.append(f"{middle:.3f} | {low:.3f} to {high:.3f}")
        size = " × ".join(map(str, shape))
        yield f"| {name} | {size} | {batch} | {seconds * 1e3:.2f} | {' | '.join(cells)} |"


def fitting_row(name: str, build: Callable[[], Backbone], images: Tensor) -> str:
    """Measure an epoch of training, and the time to fit a reliability to the same images."""
    torch.manual_seed(0)
    labels = torch.randint(CLASSES, (len(images),))
    network = RandomSetNetwork(build(), neighbouring_sets(CLASSES, SETS))
    held_out = len(images) // 10
    train, val = (images[held_out:], labels[held_out:]), (images[:held_out], labels[:held_out])
    fit(network, torch.utils.data.TensorDataset(*val), epochs=1, progress=False)  # warm-up
    start = time.process_time()
    fit(network, torch.utils.data.TensorDataset(*train), epochs=1, progress=False)
    epoch = time.process_time() - start
    start = time.process_time()
    network.fit_reliability(train, val)
    fitting = time.process_time() - start
    size = " × ".join(map(str, images.shape[1:]))
    return (
        f"| {name} | {size} | {len(train[0])} | {epoch:.2f} | {fitting:.2f} "
        f"| {fitting / epoch:.2f} | {fitting / epoch / EPOCHS:.1%} |"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--speed", type=float, default=1.0, help="a factor on the number of timed calls")
    parser.add_argument("--no-fitting", action="store_true", help="measure predictions only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{CLASSES} classes, {SETS} sets, one thread; medians and quartiles\n")
    print("| backbone | image | images | softmax, ms | without | quartiles | with reliability | quartiles |")
    print("|---|---|---|---|---|---|---|---|")
    for row in prediction_rows(arguments.speed):
        print(row, flush=True)
    if arguments.no_fitting:
        return
    print(f"\n| backbone | image | images | epoch, s | fitting, s | in epochs | of {EPOCHS} epochs |")
    print("|---|---|---|---|---|---|---|")
    print(fitting_row("small_cnn", small_cnn, torch.rand(10_000, 1, 28, 28)), flush=True)
    print(fitting_row("resnet18, 16 wide", lambda: resnet(18, width=16), torch.rand(1_000, 3, 32, 32)))


if __name__ == "__main__":
    main()
