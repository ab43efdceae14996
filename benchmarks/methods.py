"""Time of a training step and a prediction of every method of `randomset compare`, relative to softmax.

The paper's Tables 1 and 6 give milliseconds per prediction and minutes of training on its machines; only the
ratios to the softmax network can be compared. Here each method takes turns with the softmax network, call by
call, on the same backbone and images. A step of the ensemble is a step of each member. One-time costs are not
included: choosing the budget of a random-set network, and the Laplace bridge's pass over the training data.

Run: python -m benchmarks.methods
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.families import neighbouring_sets, ratios
from benchmarks.training import random_set_prediction, step
from randomset import RandomSetLoss, RandomSetNetwork
from randomset.backbones import Backbone, resnet, small_cnn
from randomset.models import FSVI, Classifier, Ensemble, Epinet, LaplaceBridge, Softmax

CLASSES, SETS, MEMBERS = 10, 20, 5
# the paper, CIFAR-10: milliseconds per prediction (Table 1), minutes of training (Table 6)
PRINTED = {
    "softmax": (1.91, 85.333),
    "rsnn": (1.91, 113.23),
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
    """Build the five baselines, the Laplace bridge with its posterior."""
    bridge = LaplaceBridge(Softmax(build(), CLASSES))
    bridge.fit_posterior([(images, labels)])
    return {
        "softmax": Softmax(build(), CLASSES),
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
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads; medians of {arguments.pairs} pairs of calls")
    for name, (build, shape) in BACKBONES.items():
        torch.manual_seed(0)
        images, labels = torch.randn(arguments.batch, *shape), torch.randint(CLASSES, (arguments.batch,))
        models = baselines(build, images, labels)
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
            time, whole = milliseconds / PRINTED["softmax"][0], minutes / PRINTED["softmax"][1]
            ours = " | ".join(f"{cell:.2f}" for cell in cells)
            print(f"| {method} | {ours} | {time:.2f} | {whole:.2f} |", flush=True)


if __name__ == "__main__":
    main()
