"""Tables 9, 10 and 15, Figures 4 and 19: the beliefs, masses and probabilities of single samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from randomset._core.checks import braces
from randomset.belief.budget import Budget
from randomset.belief.random_set import RandomSet
from randomset.data.corruptions import gaussian_noise, rotated
from randomset.evaluation.predictor import as_predictor
from randomset.evaluation.tables import Table
from randomset.report.axes import panels
from randomset.report.belief_figures import plot_simplex
from randomset.training.config import TrainConfig
from reproduction.exhibit import Exhibit, Numbers
from reproduction.measures import known_digit
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXHIBITS"]

TOP = 5


def _described(shop: Workshop, data: str, image: Tensor, label: int) -> Numbers:
    """Collect the predictions of RS-NN and CNN for one image."""
    network = shop.model(shop.config(data))
    prediction: RandomSet = network.predict(image)
    classes = network.budget.classes
    softmax = as_predictor(shop.model(shop.config(data, "softmax")))(image)
    budget = prediction.budget
    names = [braces(list(budget.names_of(i)), shorten=4) for i in range(len(budget))]
    size = len(network.budget)  # leaves out Θ, which comes last and always has belief 1
    return {
        "label": classes[label],
        "cnn": _top(classes, softmax.probabilities[0]),
        "cnn entropy": softmax.scores["entropy"][0].item(),
        "belief": _top(names, prediction.belief[0, :size]),
        "mass": _top(names, prediction.mass[0]),
        "pignistic": _top(classes, prediction.pignistic[0]),
        "entropy": prediction.entropy[0].item(),
        "width": prediction.credal_width[0].item(),
    }


def _top(names: Sequence[str], values: Tensor) -> list[tuple[str, float]]:
    best = values.topk(min(TOP, len(values)))
    return [(names[int(i)], value) for value, i in zip(best.values.tolist(), best.indices, strict=True)]


def _tables(title: str, note: str) -> Callable[[Numbers], list[Table]]:
    def tables(numbers: Numbers) -> list[Table]:
        rows = []
        for name, sample in numbers.items():
            tops = [
                "; ".join(f"{key} {value:.4f}" for key, value in sample[part])
                for part in ("cnn", "belief", "mass", "pignistic")
            ]
            scores = [f"{sample[part]:.4f}" for part in ("cnn entropy", "entropy", "width")]
            rows.append((_title(name), sample["label"], *tops, *scores))
        columns = (
            *("sample", "label", "CNN", "belief", "mass", "pignistic"),
            *("CNN entropy, bits", "RS-NN entropy, bits", "credal width"),
        )
        return [Table(title, columns, tuple(rows), note)]

    return tables


def _title(name: str) -> str:
    """Return the title of a sample; results keep the names they have had since the first version."""
    titles = {
        "surest right answer": "most certain correct prediction",
        "most uncertain wrong answer": "most uncertain wrong prediction",
    }
    return titles.get(name, name.replace("turned", "rotated"))


def _rotated_eight(shop: Workshop) -> Numbers:
    """Describe an 8, rotated by the smallest angle at which CNN is wrong."""
    image = known_digit(shop, 8)
    predictor = as_predictor(shop.model(shop.config("mnist", "softmax")))
    angle = next((a for a in range(10, 181, 10) if int(predictor(rotated(image, a)).labels[0]) != 8), 180)
    return {f"8 turned by {angle}°": _described(shop, "mnist", rotated(image, angle), 8)}


def _four_digits(shop: Workshop) -> Numbers:
    noisy = {digit: gaussian_noise(known_digit(shop, digit), 0.5, seed=0) for digit in (2, 3)}
    turned = {digit: rotated(known_digit(shop, digit), 60.0) for digit in (1, 9)}
    return {
        **{f"{d} with noise 0.5": _described(shop, "mnist", image, d) for d, image in noisy.items()},
        **{f"{d} turned by 60°": _described(shop, "mnist", image, d) for d, image in turned.items()},
    }


def _overconfident(numbers: Numbers) -> str:
    findings = []
    for name, sample in numbers.items():
        (label, p), (cnn_label, cnn_p) = sample["pignistic"][0], sample["cnn"][0]
        findings.append(
            f"{_title(name)}: CNN predicts {cnn_label} with probability {cnn_p:.2f}, RS-NN predicts {label} "
            f"with probability {p:.2f} and entropy {sample['entropy']:.2f} bits"
        )
    return "; ".join(findings) + ". Single samples prove nothing; Tables 11 and 12 cover all of them."


def _sure_and_unsure(shop: Workshop) -> Numbers:
    """Describe the most certain correct and the most uncertain wrong prediction on the test data."""
    config = shop.config("cifar10")
    tested, _, _ = shop.data(config)
    predictor = as_predictor(shop.model(config))
    parts = [predictor(part) for part in tested.inputs.split(256)]
    entropy = torch.cat([part.scores["entropy"] for part in parts])
    correct = torch.cat([part.labels for part in parts]) == tested.labels
    certain = int(entropy.masked_fill(~correct, float("inf")).argmin())
    uncertain = int(entropy.masked_fill(correct, -1.0).argmax())
    return {
        name: _described(shop, "cifar10", tested.inputs[row : row + 1], int(tested.labels[row]))
        for name, row in (("surest right answer", certain), ("most uncertain wrong answer", uncertain))
    }


def _bars(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    figure, axes = panels(1, len(numbers), (6 * len(numbers), 3.6))
    for ax, (name, sample) in zip(axes, numbers.items(), strict=True):
        names, values = zip(*sample["belief"], strict=True)
        ax.barh(range(len(names)), values)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel("belief")
        ax.set_title(f"{_title(name)}: {sample['pignistic'][0][0]}, entropy {sample['entropy']:.2f} bits")
    return {"figure": figure}


def _example() -> RandomSet:
    """Return the worked example of the paper's Section 2."""
    budget = Budget.from_sets([{"c1", "c2"}], ["c1", "c2", "c3"])
    return RandomSet.from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4]), budget)


def _simplex(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    return {"figure": plot_simplex(_example())}


def _simplex_tables(numbers: Numbers) -> list[Table]:
    rows = tuple(
        (name, *(f"{numbers[part][label]:.2f}" for part in ("lower", "pignistic", "upper")))
        for label, name in enumerate(("c1", "c2", "c3"))
    )
    return [Table("The paper's worked example", ("class", "lower", "pignistic", "upper"), rows)]


def _simplex_verdict(numbers: Numbers) -> str:
    expected = {"lower": (0.5, 0, 0.1), "pignistic": (0.7, 0.2, 0.1), "upper": (0.9, 0.4, 0.1)}
    matches = all(
        math.isclose(value, paper, abs_tol=1e-5)
        for part, values in expected.items()
        for value, paper in zip(numbers[part], values, strict=True)
    )
    result = "match" if matches else "differ from"
    return f"The bounds and the pignistic probabilities {result} those of the paper's Section 2."


def _both(shop: Workshop, data: str) -> list[TrainConfig]:
    return [shop.config(data, method) for method in ("rsnn", "softmax")]


EXHIBITS = (
    Exhibit(
        id="table-9",
        title="Beliefs, masses and probabilities of a rotated 8",
        data=("mnist",),
        models=lambda shop: _both(shop, "mnist"),
        measure=_rotated_eight,
        tables=_tables("A rotated 8", "The paper's own values here are inconsistent."),
        verdict=_overconfident,
    ),
    Exhibit(
        id="table-10",
        title="Single noisy and rotated digits",
        data=("mnist",),
        models=lambda shop: _both(shop, "mnist"),
        measure=_four_digits,
        tables=_tables("Four digits", "The first image of each digit that both networks classify correctly."),
        verdict=_overconfident,
    ),
    Exhibit(
        id="table-15",
        title="A certain and an uncertain prediction on CIFAR-10",
        data=("cifar10",),
        models=lambda shop: _both(shop, "cifar10"),
        measure=_sure_and_unsure,
        tables=_tables("A certain and an uncertain prediction", "First seed."),
        verdict=_overconfident,
    ),
    Exhibit(
        id="figure-4",
        title="The credal set of a belief function",
        data=(),
        models=lambda shop: [],
        measure=lambda shop: {
            name: getattr(_example(), name).flatten().tolist() for name in ("lower", "pignistic", "upper")
        },
        tables=_simplex_tables,
        verdict=_simplex_verdict,
        figures=_simplex,
    ),
    Exhibit(
        id="figure-19",
        title="Beliefs of two samples",
        data=("cifar10",),
        models=lambda shop: _both(shop, "cifar10"),
        measure=_sure_and_unsure,
        tables=_tables("A certain and an uncertain prediction", "First seed."),
        verdict=_overconfident,
        figures=_bars,
    ),
)
