"""Time of a training step and a prediction of every method of `randomset compare`, relative to softmax.

The paper's Tables 1 and 6 give milliseconds per prediction and minutes of training on its machines; only the
ratios to the softmax network can be compared. Here each method takes turns with the softmax network, call by
call, on the same backbone and images. A step of an ensemble is a step of each member. One-time costs are not
included: choosing the budget of a random-set network, and the Laplace bridge's pass over the training data.
The last lines compare both ensembles, also with a reliability of the largest size for every member.

Run: python -m benchmarks.methods
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.families import neighbouring_sets, ratios
from benchmarks.training import random_set_prediction, step
from randomset import RandomSetEnsemble, RandomSetLoss, RandomSetNetwork
from randomset.backbones import Backbone, resnet, small_cnn
from randomset.models import FSVI, Classifier, Ensemble, Epinet, LaplaceBridge, Reliability, Softmax
from randomset.models.reliability import MAX_ROWS

CLASSES, SETS, MEMBERS = 10, 20, 5
# the paper, CIFAR-10: milliseconds per prediction (Table 1), minutes of training (Table 6)
PRINTED = {
    "softmax": (1.91, 85.333),
    "rsnn": (1.91, 113.23),
    "random-set-ensemble": (math.nan, math.nan),
    "laplace-bridge": (7.11, 107.900),
    "fsvi": (340.25, 1518.35),
    "ensemble": (13163.50, 426.66),
    "epinet": (3.10, 712.302),
}
BACKBONES: dict[str, tuple[Callable[[], Backbone], tuple[int, int, int]]] = {
    "small_cnn": (small_cnn, (1, 28, 28)),
    "resnet18, 8 wide": (lambda: resnet(18, width=8), (3, 32, 32)),
}


def prediction(model: Classifier, images: Tensor) -> Callable[[], object]:
    """Return a function that predicts, with the entropy and the method's own scores."""

    def run() -> tuple[Tensor, object]:
        found = model.predict(images)
        return found.labels, found.scores

    return run


def baselines(build: Callable[[], Backbone], images: Tensor, labels: Tensor) -> dict[str, Classifier]:
    """Build the baselines, the Laplace bridge with its posterior, and a random-set ensemble."""
    budget = neighbouring_sets(CLASSES, SETS)
    bridge = LaplaceBridge(Softmax(build(), CLASSES))
    bridge.fit_posterior([(images, labels)])
    return {
        "softmax": Softmax(build(), CLASSES),
        "random-set-ensemble": RandomSetEnsemble([RandomSetNetwork(build(), budget) for _ in range(MEMBERS)]),
        "ensemble": Ensemble([Softmax(build(), CLASSES) for _ in range(MEMBERS)]),
        "laplace-bridge": bridge,
        "fsvi": FSVI(build(), CLASSES, num_train=50_000),
        "epinet": Epinet(build(), CLASSES),
    }


def steps(model: Classifier, images: Tensor, labels: Tensor) -> Callable[[], object]:
    """Return a training step: five for an ensemble, that of its network for the Laplace bridge."""
    parts: list[nn.Module] = [model]
    if isinstance(model, Ensemble):
        parts = list(model.members)
    elif isinstance(model, LaplaceBridge):
        parts = [model.network]
    runs = []
    for part in parts:
        assert isinstance(part, Classifier)
        runs.append(step(part.train(), part.default_loss(), images, labels))

    def run() -> None:
        for each in runs:
            each()

    return run


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=128, help="images per step and per batch prediction")
    parser.add_argument("--pairs", type=int, default=15, help="number of timed pairs")
    parser.add_argument("--ensembles", action="store_true", help="compare only the two ensembles")
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads; medians of {arguments.pairs} pairs of calls")
    for name, (build, shape) in BACKBONES.items():
        torch.manual_seed(0)
        images, labels = torch.randn(arguments.batch, *shape), torch.randint(CLASSES, (arguments.batch,))
        models = baselines(build, images, labels)
        if arguments.ensembles:
            print(f"\n{name}")
            print_ensembles(models, images, arguments.pairs)
            continue
        plain = models["softmax"]
        budget = neighbouring_sets(CLASSES, SETS)
        network = RandomSetNetwork(build(), budget)
        print(f"\n{name}, in units of softmax's time; a step is of {arguments.batch} images")
        print(
            "| method | training step | one image | image among many | paper: prediction | paper: training |"
        )
        print("|---|---|---|---|---|---|")
        for method, (milliseconds, minutes) in PRINTED.items():
            cells = []
            for what in ("step", "one", "many"):
                seen = images[:1] if what == "one" else images
                if what == "step":
                    base = steps(plain, images, labels)
                    other = step(network.train(), RandomSetLoss(budget), images, labels)
                    if method != "rsnn":
                        other = steps(models[method], images, labels)
                else:
                    base, other = prediction(plain, seen), random_set_prediction(network.eval(), seen)
                    if method != "rsnn":
                        other = prediction(models[method], seen)
                cells.append(ratios(base, other, pairs=arguments.pairs * (8 if what == "one" else 1))[1])
            cells += [milliseconds / PRINTED["softmax"][0], minutes / PRINTED["softmax"][1]]
            shown = ["–" if math.isnan(cell) else f"{cell:.2f}" for cell in cells]
            print(f"| {method} | {' | '.join(shown)} |", flush=True)
        print_ensembles(models, images, arguments.pairs)


def print_ensembles(models: dict[str, Classifier], images: Tensor, pairs: int) -> None:
    """Print the time of a prediction of the random-set ensemble in units of the deep ensemble's."""
    several: Any = models["random-set-ensemble"]
    for reliability in (False, True):
        for member in several.members if reliability else ():
            features = torch.randn(MAX_ROWS, member.in_features)
            labels = torch.arange(MAX_ROWS) % CLASSES
            member.reliability = Reliability.fit(features, labels, features[:200], num_classes=CLASSES)
        times = []
        for seen in (images[:1], images):
            both = prediction(models["ensemble"], seen), prediction(several, seen)
            times.append(ratios(*both, pairs=pairs, clock=time.process_time)[1])
        print(
            f"random-set ensemble with{'' if reliability else 'out'} reliability, in units of the ensemble's "
            f"time: {times[0]:.2f} for one image, {times[1]:.2f} for one among many",
            flush=True,
        )


if __name__ == "__main__":
    main()
