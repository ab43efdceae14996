"""Tables 9, 10 and 15, Figures 4 and 19: single predictions, with beliefs, masses and probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from randomset.belief.budget import Budget
from randomset.belief.naming import braces
from randomset.belief.random_set import RandomSet
from randomset.data.corruptions import gaussian_noise, rotated
from randomset.evaluation.predictor import as_predictor
from randomset.evaluation.tables import Table
from reproduction.exhibit import Exhibit, Numbers
from reproduction.measures import known_digit
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

__all__ = ["EXHIBITS"]

TOP = 5


def _described(shop: Workshop, data: str, image: Tensor, label: int) -> Numbers:
    """What the random-set network and its softmax twin say about one image."""
    network = shop.model(shop.config(data))
    found: RandomSet = network.predict(image)
    classes = network.budget.classes
    plain = as_predictor(shop.model(shop.config(data, "softmax")))(image)
    names = [braces(list(found.budget.names_of(i)), shorten=4) for i in range(len(found.budget))]
    own = len(network.budget)  # Θ comes after it, and its belief is 1 always
    return {
        "label": classes[label],
        "cnn": _top(classes, plain.probabilities[0]),
        "cnn entropy": plain.scores["entropy"][0].item(),
        "belief": _top(names, found.belief[0, :own]),
        "mass": _top(names, found.mass[0]),
        "pignistic": _top(classes, found.pignistic[0]),
        "entropy": found.entropy[0].item(),
        "width": found.credal_width[0].item(),
    }


def _top(names: Any, values: Tensor) -> list[tuple[str, float]]:
    best = values.topk(min(TOP, len(values)))
    return [(names[int(i)], value) for value, i in zip(best.values.tolist(), best.indices, strict=True)]


def _tables(title: str, note: str) -> Any:
    def tables(numbers: Numbers) -> list[Table]:
        rows = []
        for name, one in numbers.items():
            lists = [
                "; ".join(f"{who} {value:.4f}" for who, value in one[part])
                for part in ("cnn", "belief", "mass", "pignistic")
            ]
            ends = (f"{one['cnn entropy']:.4f}", f"{one['entropy']:.4f}", f"{one['width']:.4f}")
            rows.append((name, one["label"], *lists, *ends))
        columns = (
            *("sample", "label", "CNN", "belief", "mass", "pignistic"),
            *("CNN's entropy, bits", "RS-NN's entropy, bits", "credal width"),
        )
        return [Table(title, columns, tuple(rows), note)]

    return tables


def _rotated_eight(shop: Workshop) -> Numbers:
    """An 8 turned as far as the softmax network first gets it wrong."""
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
    said = []
    for name, one in numbers.items():
        ours, theirs = one["pignistic"][0], one["cnn"][0]
        said.append(
            f"{name}: CNN says {theirs[0]} at {theirs[1]:.2f}, RS-NN says {ours[0]} at {ours[1]:.2f} "
            f"with {one['entropy']:.2f} bits"
        )
    return "; ".join(said) + ". Single samples prove nothing: Tables 11 and 12 count them all."


def _sure_and_unsure(shop: Workshop) -> Numbers:
    """The surest right answer and the most uncertain wrong one of the test data."""
    config = shop.config("cifar10")
    tested, _, _ = shop.data(config)
    predictor = as_predictor(shop.model(config))
    parts = [predictor(part) for part in tested.inputs.split(256)]
    entropy = torch.cat([part.scores["entropy"] for part in parts])
    right = torch.cat([part.labels for part in parts]) == tested.labels
    sure = int(entropy.masked_fill(~right, float("inf")).argmin())
    unsure = int(entropy.masked_fill(right, -1.0).argmax())
    return {
        name: _described(shop, "cifar10", tested.inputs[row : row + 1], int(tested.labels[row]))
        for name, row in (("surest right answer", sure), ("most uncertain wrong answer", unsure))
    }


def _bars(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.axes import panels

    figure, axes = panels(1, len(numbers), (6 * len(numbers), 3.6))
    for ax, (name, one) in zip(axes, numbers.items(), strict=True):
        names, values = zip(*one["belief"], strict=True)
        ax.barh(range(len(names)), values)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel("belief")
        ax.set_title(f"{name}: {one['pignistic'][0][0]}, entropy {one['entropy']:.2f} bits")
    return {"figure": figure}


def _example() -> RandomSet:
    """The paper's worked example of Section 2."""
    budget = Budget.from_sets([{"c1", "c2"}], ["c1", "c2", "c3"])
    return RandomSet.from_mass(torch.tensor([0.5, 0.0, 0.1, 0.4]), budget)


def _simplex(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.belief_figures import plot_simplex

    return {"figure": plot_simplex(_example())}


def _simplex_tables(numbers: Numbers) -> list[Table]:
    rows = tuple(
        (name, *(f"{numbers[part][place]:.2f}" for part in ("lower", "pignistic", "upper")))
        for place, name in enumerate(("c1", "c2", "c3"))
    )
    return [Table("The paper's worked example", ("class", "lower", "pignistic", "upper"), rows)]


def _both(shop: Workshop, data: str) -> list[Any]:
    return [shop.config(data, method) for method in ("rsnn", "softmax")]


EXHIBITS = (
    Exhibit(
        id="table-9",
        title="A turned 8, with its beliefs, masses and probabilities",
        data=("mnist",),
        models=lambda shop: _both(shop, "mnist"),
        measure=_rotated_eight,
        tables=_tables("A turned 8", "The paper's own figures here contradict each other."),
        verdict=_overconfident,
    ),
    Exhibit(
        id="table-10",
        title="Digits with noise and turned, one by one",
        data=("mnist",),
        models=lambda shop: _both(shop, "mnist"),
        measure=_four_digits,
        tables=_tables("Four digits", "The first of each digit that both networks know unchanged."),
        verdict=_overconfident,
    ),
    Exhibit(
        id="table-15",
        title="A sure and an unsure prediction on CIFAR-10",
        data=("cifar10",),
        models=lambda shop: _both(shop, "cifar10"),
        measure=_sure_and_unsure,
        tables=_tables("A sure and an unsure prediction", "First seed."),
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
        verdict=lambda numbers: "The bounds and BetP = (0.7, 0.2, 0.1) are those of the paper's Section 2.",
        figures=_simplex,
    ),
    Exhibit(
        id="figure-19",
        title="Beliefs of two samples",
        data=("cifar10",),
        models=lambda shop: _both(shop, "cifar10"),
        measure=_sure_and_unsure,
        tables=_tables("A sure and an unsure prediction", "First seed."),
        verdict=_overconfident,
        figures=_bars,
    ),
)
