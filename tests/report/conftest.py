"""Evaluations, a network and a report that the tests of this folder share."""

import json
import re
from typing import Any

import matplotlib.figure
import pytest
import torch

from randomset import Budget, RandomSet, RandomSetNetwork, backbones
from randomset.data import Source
from randomset.evaluation import Prediction, Threshold, evaluate
from randomset.report import evaluation_report, gallery_of
from tests.strategies import random_budget

BUDGET = random_budget(5, 9, max_size=3)
NAMES = ["cat", "dog $5", "a class with a very long name indeed", "_e", "f"]
CLASSES = ("cat", "dog", "<script>alert(1)</script>")
SPACE = {
    "classes": list(CLASSES),
    "radius": 2.0,
    "ellipsoids": [
        {"centre": [float(c), 0.0, 0.0], "axes": [[1.0, 0, 0], [0, 0.5, 0], [0, 0, 0.2]], "of": c}
        for c in range(3)
    ],
    "points": [[float(c), 0.1 * i, 0.0, c] for c in range(3) for i in range(5)],
}


def images(samples: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.rand(samples, 1, 5, 5)


def random_set_model(inputs: torch.Tensor) -> Prediction:
    masses = (4 * inputs.flatten(1)[:, : len(BUDGET)]).softmax(1)
    return Prediction.from_random_set(RandomSet.from_mass(masses, BUDGET))


def softmax_model(inputs: torch.Tensor) -> torch.Tensor:
    return (6 * inputs.flatten(1)[:, :5]).softmax(1)


@pytest.fixture(scope="session")
def full():
    """An evaluation of a random-set model with all its parts; no test input is of class 4."""
    inputs = images(300)
    predicted = random_set_model(inputs).labels
    labels = torch.where(torch.rand(300) < 0.7, predicted, predicted + 1) % 4
    return evaluate(
        random_set_model,
        (inputs, labels),
        {"flat": images(90, 0.2), "bright": 1 - images(40, 0.5)},
        validation=(images(80), torch.arange(80) % 4),
        classes=NAMES,
        noise=[0.5, 0.2],
        rotation=[(-60, 0), (0, 60)],
        samples=40,
        bins=10,
    )


@pytest.fixture(scope="session")
def plain():
    """An evaluation of a softmax model on test data alone."""
    return evaluate(softmax_model, (images(30), torch.arange(30) % 5))


@pytest.fixture(scope="session")
def measured():
    """A network on random images, its evaluation, the test data and the unknown data."""
    network = RandomSetNetwork(backbones.small_cnn(1, 8), Budget.powerset(CLASSES)).eval()
    with torch.no_grad():
        next(network.head.layers.parameters()).mul_(30)
    tested = Source("random", "images", torch.rand(60, 1, 8, 8), torch.arange(60) % 3, CLASSES)
    bright = Source("bright", "images", 3 * torch.rand(40, 1, 8, 8), torch.full((40,), -1), CLASSES)
    result = evaluate(
        network, tested, {"bright": bright.inputs},
        validation=(torch.rand(30, 1, 8, 8), torch.arange(30) % 3),
        noise=(0.2, 0.5), rotation=((30, 60), (0, 360)), samples=20, progress=False,
    )  # fmt: skip
    return network, result, tested, {"bright": bright}


@pytest.fixture(scope="session")
def discounted():
    """The same with a reliability: a network, its evaluation, the test data and the unknown data."""
    network = RandomSetNetwork(backbones.small_cnn(1, 8), Budget.powerset(CLASSES)).eval()
    known, labels = torch.rand(200, 1, 8, 8), torch.arange(200) % 3
    network.fit_reliability((known[:100], labels[:100]), (known[100:140], labels[100:140]), kind="neighbours")
    assert network.reliability is not None
    network.reliability.familiar_from.fill_(0.5)  # whatever the random images give
    tested = Source("random", "images", known[140:], labels[140:], CLASSES)
    bright = Source("bright", "images", 9 + torch.rand(30, 1, 8, 8), torch.full((30,), -1), CLASSES)
    result = evaluate(network, tested, {"bright": bright.inputs}, progress=False)
    return network, result, tested, {"bright": bright}


@pytest.fixture(scope="session")
def report(measured):
    """The report of that evaluation, with everything in it."""
    network, result, tested, unknown = measured
    threshold = Threshold("entropy", result["threshold"]["value"], 0.95)
    gallery = gallery_of(network, result, tested, unknown, threshold=threshold, count=4)
    return evaluation_report(
        result, title="Random <images>", gallery=gallery, space=SPACE, sets=[("{cat, dog}", 0.5)]
    )


def content_of(page: str) -> Any:
    """Return the data that the script of a page draws."""
    match = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.S)
    assert match
    return json.loads(match[1])


def axes_of(figure: matplotlib.figure.Figure) -> Any:
    """Return the axes, without matplotlib's incomplete types."""
    return figure.axes


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def correct_of(result: Any) -> Any:
    return (result.predictions["test"].labels == result.labels["test"]).numpy()
