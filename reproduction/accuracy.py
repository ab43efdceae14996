"""Table 1, accuracy and the time of a prediction; Table 6, the time of a training."""

from __future__ import annotations

import torch

from randomset.evaluation.tables import Table
from randomset.evaluation.timing import in_turns
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, over_seeds
from reproduction.measures import beside, every_model, lead
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

__all__ = ["EXHIBITS"]

DATA = ("mnist", "cifar10", "intel")
LARGER = ("cifar100", "imagenet")  # where the scale has them


def _data(shop: Workshop) -> tuple[str, ...]:
    return (*DATA, *(name for name in LARGER if name in shop.scale.settings))


def _accuracy(shop: Workshop) -> Numbers:
    found: Numbers = {"accuracy": {}}
    for data in _data(shop):
        found["accuracy"][data] = {
            method: [one["test"]["accuracy"] for one in shop.evaluations(data, method)] for method in METHODS
        }
    models = {method: shop.model(shop.config("cifar10", method)) for method in METHODS}
    one = torch.rand(1, *models["rsnn"].notes["input_shape"])
    found["milliseconds"] = in_turns(models, one)
    return found


def _accuracy_table(numbers: Numbers) -> list[Table]:
    rows = []
    for method, title in METHODS.items():
        cells = [
            beside(over_seeds(numbers["accuracy"][data][method]), printed.ACCURACY[data][method])
            for data in numbers["accuracy"]
        ]
        ours = numbers["milliseconds"]
        ratio = beside(f"{ours[method] / ours['softmax']:.2f}", _ratio(method))
        rows.append((title, *cells, f"{ours[method]:.2f}", ratio))
    names = (
        "method",
        *(f"{data}, %" for data in numbers["accuracy"]),
        "one prediction, ms",
        "relative to CNN",
    )
    note = "Ours, with the standard deviation over seeds; in brackets the paper's."
    return [Table("Accuracy and time of a prediction", names, tuple(rows), note)]


def _ratio(method: str) -> float:
    return printed.MILLISECONDS[method] / printed.MILLISECONDS["softmax"]


def _accuracy_verdict(numbers: Numbers) -> str:
    leads = [f"{data} {lead(numbers['accuracy'][data])}" for data in numbers["accuracy"]]
    won = [
        data
        for data in numbers["accuracy"]
        if max(METHODS, key=lambda method: mean_of(numbers["accuracy"][data][method])) == "rsnn"
    ]
    held = "held" if len(won) == len(leads) else f"held on {', '.join(won)} alone" if won else "did not hold"
    return (
        f"The paper's claim that RS-NN is the most accurate on every data set {held}: points of accuracy, "
        f"with the best of the others, {'; '.join(leads)}."
    )


def _time(shop: Workshop) -> Numbers:
    found: Numbers = {"seconds": {}}
    for method in METHODS:
        models = [shop.model(shop.config("cifar10", method, seed)) for seed in shop.seeds]
        found["seconds"][method] = [float(model.notes["seconds"]) for model in models]
    return found


def _time_table(numbers: Numbers) -> list[Table]:
    seconds = numbers["seconds"]
    base = mean_of(seconds["softmax"])
    rows = tuple(
        (
            title,
            over_seeds(seconds[method], 1 / 60),
            beside(
                f"{mean_of(seconds[method]) / base:.2f}", printed.MINUTES[method] / printed.MINUTES["softmax"]
            ),
        )
        for method, title in METHODS.items()
    )
    note = "Minutes on this machine; in brackets the ratio of the paper's minutes on its GPU."
    return [Table("Time of a training", ("method", "minutes", "relative to CNN"), rows, note)]


def _time_verdict(numbers: Numbers) -> str:
    seconds = {method: mean_of(each) for method, each in numbers["seconds"].items()}
    ratio = seconds["rsnn"] / seconds["softmax"]
    first = " (it trains a plain network first, for the budget)"
    order = ", ".join(METHODS[method] for method in sorted(seconds, key=lambda name: seconds[name]))
    return f"RS-NN trains {ratio:.1f} times as long as CNN{first}; from the shortest to the longest: {order}."


EXHIBITS = (
    Exhibit(
        id="table-1",
        title="Accuracy and inference time",
        data=DATA,
        models=lambda shop: every_model(shop, _data(shop)),
        measure=_accuracy,
        tables=_accuracy_table,
        verdict=_accuracy_verdict,
    ),
    Exhibit(
        id="table-6",
        title="Training time",
        data=("cifar10",),
        models=lambda shop: every_model(shop, ("cifar10",)),
        measure=_time,
        tables=_time_table,
        verdict=_time_verdict,
    ),
)
