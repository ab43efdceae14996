"""Table 1, accuracy and inference time; Table 6, training time."""

from __future__ import annotations

import torch

from randomset.evaluation.metrics import in_turns
from randomset.evaluation.tables import Table
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, over_seeds
from reproduction.measures import beside, every_model, lead
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

__all__ = ["EXHIBITS"]

DATA = ("mnist", "cifar10", "intel")
LARGER = ("cifar100", "imagenet")  # only at scales that have them


def _data(shop: Workshop) -> tuple[str, ...]:
    return (*DATA, *(name for name in LARGER if name in shop.scale.settings))


def _accuracy(shop: Workshop) -> Numbers:
    accuracy = {
        data: {
            method: [result["test"]["accuracy"] for result in shop.evaluations(data, method)]
            for method in METHODS
        }
        for data in _data(shop)
    }
    models = {method: shop.model(shop.config("cifar10", method)) for method in METHODS}
    image = torch.rand(1, *models["rsnn"].notes["input_shape"])
    return {"accuracy": accuracy, "milliseconds": in_turns(models, image)}


def _accuracy_table(numbers: Numbers) -> list[Table]:
    accuracy, milliseconds = numbers["accuracy"], numbers["milliseconds"]
    rows = []
    for method, title in METHODS.items():
        cells = [
            beside(over_seeds(accuracy[data][method]), printed.ACCURACY[data][method]) for data in accuracy
        ]
        ratio = milliseconds[method] / milliseconds["softmax"]
        paper = printed.MILLISECONDS[method] / printed.MILLISECONDS["softmax"]
        rows.append((title, *cells, f"{milliseconds[method]:.2f}", beside(f"{ratio:.2f}", paper)))
    columns = ("method", *(f"{data}, %" for data in accuracy), "one prediction, ms", "relative to CNN")
    note = "Mean and standard deviation over seeds; the paper's values are in parentheses."
    return [Table("Accuracy and inference time", columns, tuple(rows), note)]


def _accuracy_verdict(numbers: Numbers) -> str:
    accuracy = numbers["accuracy"]
    won = [data for data in accuracy if max(METHODS, key=lambda m: mean_of(accuracy[data][m])) == "rsnn"]
    result = "is confirmed" if len(won) == len(accuracy) else "is not confirmed"
    if 0 < len(won) < len(accuracy):
        result = f"is confirmed only on {', '.join(won)}"
    leads = "; ".join(f"{data} {lead(accuracy[data])}" for data in accuracy)
    return (
        f"The paper's claim that RS-NN is the most accurate method on every data set {result}. Difference to "
        f"the best other method, in points: {leads}."
    )


def _time(shop: Workshop) -> Numbers:
    def seconds(method: str, seed: int) -> float:
        return float(shop.model(shop.config("cifar10", method, seed)).notes["seconds"])

    return {"seconds": {method: [seconds(method, seed) for seed in shop.seeds] for method in METHODS}}


def _time_table(numbers: Numbers) -> list[Table]:
    rows = []
    for method, title in METHODS.items():
        seconds = numbers["seconds"][method]
        ratio = mean_of(seconds) / mean_of(numbers["seconds"]["softmax"])
        paper = printed.MINUTES[method] / printed.MINUTES["softmax"]
        rows.append((title, over_seeds(seconds, 1 / 60), beside(f"{ratio:.2f}", paper)))
    note = "Minutes on this machine; in parentheses, the ratio of the paper's training times on a GPU."
    return [Table("Training time", ("method", "minutes", "relative to CNN"), tuple(rows), note)]


def _time_verdict(numbers: Numbers) -> str:
    seconds = {method: mean_of(values) for method, values in numbers["seconds"].items()}
    ratio = seconds["rsnn"] / seconds["softmax"]
    order = ", ".join(METHODS[method] for method in sorted(seconds, key=lambda method: seconds[method]))
    return (
        f"Training RS-NN takes {ratio:.1f} times as long as training CNN (it trains a softmax network first, "
        f"to choose the focal sets). From fastest to slowest: {order}."
    )


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
