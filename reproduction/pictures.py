"""Figures 6, 7, 12, 13, 18 and 21 to 25: curves, densities, bars and scatter plots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from randomset.evaluation.tables import Table
from randomset.report import detection_figures, evaluation_figures
from randomset.report.detection_figures import plot_curves, plot_entropies
from reproduction.exhibit import Exhibit, Numbers, over_seeds
from reproduction.measures import every_model
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from randomset.evaluation import Evaluation

__all__ = ["EXHIBITS"]

DATA = {"cifar10": ("svhn", "intel"), "mnist": ("fashion-mnist", "kmnist")}
SHOWN = ("rsnn", "laplace-bridge", "epinet", "softmax")


def _first(shop: Workshop, data: str, method: str = "rsnn") -> Evaluation:
    """Return the evaluation of the first seed, which the figures show."""
    return shop.evaluation(data, shop.config(data, method))


# -- several methods ------------------------------------------------------------------------------


def _areas(shop: Workshop, data: str, methods: tuple[str, ...]) -> Numbers:
    return {
        name: {
            method: [
                result["ood"][name]["scores"]["entropy"]["auroc"] for result in shop.evaluations(data, method)
            ]
            for method in methods
        }
        for name in DATA[data]
    }


def _area_tables(numbers: Numbers) -> list[Table]:
    rows = tuple(
        (METHODS[method], *(over_seeds(numbers[name][method]) for name in numbers))
        for method in next(iter(numbers.values()))
    )
    columns = ("method", *(f"{name}: AUROC, %" for name in numbers))
    return [Table("Areas under the curves", columns, rows)]


def _area_verdict(numbers: Numbers) -> str:
    best = {name: max(auroc, key=lambda method: np.mean(auroc[method])) for name, auroc in numbers.items()}
    winners = ", ".join(f"{METHODS[method]} on {name}" for name, method in best.items())
    return f"The largest area under the ROC curve is that of {winners}."


def _curves(shop: Workshop, data: str) -> dict[str, Figure]:
    results = {METHODS[method]: _first(shop, data, method) for method in SHOWN}
    return {name: plot_curves(results, name, note=", first seed") for name in DATA[data]}


def _ratios(shop: Workshop) -> Numbers:
    return {
        f"{data} → {name}": {
            method: [
                result["ood"][name]["scores"]["entropy"]["unknown"]["mean"]
                / result["test"]["scores"]["entropy"]["mean"]
                for result in shop.evaluations(data, method)
            ]
            for method in METHODS
        }
        for data, unknown in DATA.items()
        for name in unknown
    }


def _ratio_tables(numbers: Numbers) -> list[Table]:
    rows = tuple(
        (name, *(over_seeds(ratios[method], 1, 1) for method in METHODS)) for name, ratios in numbers.items()
    )
    note = "Mean entropy on unknown inputs divided by mean entropy on test inputs."
    return [Table("Entropy ratio", ("data", *METHODS.values()), rows, note)]


def _ratio_verdict(numbers: Numbers) -> str:
    best = [max(METHODS, key=lambda method: np.mean(ratios[method])) for ratios in numbers.values()]
    return f"RS-NN has the largest ratio in {best.count('rsnn')} of {len(best)} cases; in the paper, in all."


def _bars(shop: Workshop) -> dict[str, Figure]:
    return {
        data: plot_entropies({METHODS[m]: _first(shop, data, m) for m in METHODS}, f", {data}, first seed")
        for data in DATA
    }


# -- one random-set network -----------------------------------------------------------------------


def _right_and_wrong(shop: Workshop, score: str) -> Numbers:
    """Average a score over correct and over wrong predictions on CIFAR-10."""
    numbers: Numbers = {"right": [], "wrong": []}
    for result in shop.evaluations("cifar10"):
        prediction = result.predictions["test"]
        correct = prediction.labels == result.labels["test"]
        values = prediction.scores[score].double()
        for name, mask in (("right", correct), ("wrong", ~correct)):
            numbers[name].append(values[mask].mean().item() if mask.any() else None)
    return numbers


def _right_and_wrong_tables(numbers: Numbers) -> list[Table]:
    rows = (
        ("correct", over_seeds(numbers["right"], 1, 3)),
        ("wrong", over_seeds(numbers["wrong"], 1, 3)),
    )
    title = "Correct and wrong predictions on CIFAR-10"
    return [Table(title, ("predictions", "mean credal width"), rows)]


def _right_and_wrong_verdict(numbers: Numbers) -> str:
    wider = all(
        wrong is None or right is None or wrong > right
        for right, wrong in zip(numbers["right"], numbers["wrong"], strict=True)
    )
    if wider:
        return "Wrong predictions have the larger mean credal width with every seed, as in the paper."
    return "Unlike in the paper, wrong predictions do not have the larger mean credal width with every seed."


def _correlations(shop: Workshop, score: str) -> Numbers:
    """Compute the rank correlation of a score with the confidence, on test and unknown data."""
    from scipy.stats import spearmanr

    numbers: Numbers = {name: [] for name in ("test", *DATA["cifar10"])}
    for result in shop.evaluations("cifar10"):
        for name, values in numbers.items():
            prediction = result.predictions[name]
            values.append(float(spearmanr(prediction.confidence, prediction.scores[score]).statistic))
    return numbers


def _correlation_tables(numbers: Numbers) -> list[Table]:
    rows = tuple((name, over_seeds(values, 1, 3)) for name, values in numbers.items())
    return [Table("Rank correlation with confidence", ("data", "Spearman's ρ"), rows)]


def _correlation_verdict(score: str) -> Callable[[Numbers], str]:
    def verdict(numbers: Numbers) -> str:
        strongest = max(abs(float(np.mean(values))) for values in numbers.values())
        claim = "is closely correlated" if score == "entropy" else "is not correlated"
        return (
            f"According to the paper, the {score} {claim} with the confidence; the largest absolute rank "
            f"correlation here is {strongest:.2f}."
        )

    return verdict


def _report(name: str, data: str, *options: Any) -> Callable[[Workshop, Numbers], dict[str, Figure]]:
    """Return a function that draws the first seed's evaluation with a function of the report."""

    def draw(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
        function = getattr(evaluation_figures, name, None) or getattr(detection_figures, name)
        return {"figure": function(_first(shop, data), *options)}

    return draw


def _single(id: str, title: str, data: str, **parts: Any) -> Exhibit:
    models = lambda shop: every_model(shop, (data,), ("rsnn",))  # noqa: E731
    return Exhibit(id=id, title=title, data=(data,), models=models, **parts)


def _of_curves(id: str, data: str) -> Exhibit:
    return Exhibit(
        id=id,
        title=f"ROC and precision-recall curves, {data}",
        data=(data,),
        models=lambda shop: every_model(shop, (data,), SHOWN),
        measure=lambda shop: _areas(shop, data, SHOWN),
        tables=_area_tables,
        verdict=_area_verdict,
        figures=lambda shop, numbers: _curves(shop, data),
    )


def _of_densities(id: str, data: str) -> Exhibit:
    return _single(
        id,
        f"Entropy distribution, {data} and unknown inputs",
        data,
        measure=lambda shop: _areas(shop, data, ("rsnn",)),
        tables=_area_tables,
        verdict=lambda numbers: (
            "Unknown inputs tend to have the larger entropy where the AUROC exceeds 50 %."
        ),
        figures=_report("plot_densities", data, "entropy"),
    )


def _intervals(shop: Workshop) -> Numbers:
    numbers: Numbers = {"width": [], "inside": []}
    for result in shop.evaluations("cifar10"):
        prediction = result.predictions["test"]
        numbers["width"].append(prediction.scores["credal width"].double().mean().item())
        assert prediction.lower is not None
        assert prediction.upper is not None
        bounds = (prediction.lower, prediction.upper)
        low, high = (bound.gather(1, prediction.labels[:, None])[:, 0] for bound in bounds)
        inside = (low <= prediction.confidence + 1e-6) & (prediction.confidence <= high + 1e-6)
        numbers["inside"].append(inside.double().mean().item())
    return numbers


def _interval_tables(numbers: Numbers) -> list[Table]:
    row = (over_seeds(numbers["width"], 1, 4), over_seeds(numbers["inside"]))
    return [
        Table("Bounds of the predicted class", ("mean credal width", "BetP within the bounds, %"), (row,))
    ]


def _interval_verdict(numbers: Numbers) -> str:
    if min(numbers["inside"]) == 1:
        return "The pignistic probability always lies within the bounds, as the theory requires."
    return "The pignistic probability does not always lie within the bounds, which contradicts the theory."


EXHIBITS = (
    _single(
        "figure-6",
        "Credal width of correct and wrong predictions",
        "cifar10",
        measure=lambda shop: _right_and_wrong(shop, "credal width"),
        tables=_right_and_wrong_tables,
        verdict=_right_and_wrong_verdict,
        figures=_report("plot_densities", "cifar10", "credal width"),
    ),
    _single(
        "figure-7",
        "Lower and upper probabilities of 100 samples",
        "cifar10",
        measure=_intervals,
        tables=_interval_tables,
        verdict=_interval_verdict,
        figures=_report("plot_intervals", "cifar10"),
    ),
    _of_curves("figure-12", "cifar10"),
    _of_curves("figure-13", "mnist"),
    Exhibit(
        id="figure-18",
        title="Entropy of all methods on known and unknown inputs",
        data=tuple(DATA),
        models=lambda shop: every_model(shop, tuple(DATA)),
        measure=_ratios,
        tables=_ratio_tables,
        verdict=_ratio_verdict,
        figures=lambda shop, numbers: _bars(shop),
    ),
    _of_densities("figure-21", "mnist"),
    _of_densities("figure-22", "cifar10"),
    _single(
        "figure-23",
        "Credal width of correct and wrong predictions, by class",
        "cifar10",
        measure=lambda shop: _right_and_wrong(shop, "credal width"),
        tables=_right_and_wrong_tables,
        verdict=_right_and_wrong_verdict,
        figures=_report("plot_widths_by_class", "cifar10"),
    ),
    *(
        _single(
            id,
            f"{score.capitalize()} against confidence",
            "cifar10",
            measure=lambda shop, score=score: _correlations(shop, score),
            tables=_correlation_tables,
            verdict=_correlation_verdict(score),
            figures=_report("plot_against_confidence", "cifar10"),
        )
        for id, score in (("figure-24", "entropy"), ("figure-25", "credal width"))
    ),
)
