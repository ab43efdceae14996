"""Figures 6, 7, 12, 13, 18 and 21 to 25: curves, densities, bars and clouds of the same measurements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from randomset.evaluation.tables import Table
from reproduction.exhibit import Exhibit, Numbers, over_seeds
from reproduction.measures import every_model
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from randomset.evaluation import Evaluation

__all__ = ["EXHIBITS"]

DATA = {"cifar10": ("svhn", "intel"), "mnist": ("fashion-mnist", "kmnist")}
SHOWN = ("rsnn", "laplace-bridge", "epinet", "softmax")  # of the paper's curves


def _first(shop: Workshop, data: str, method: str = "rsnn") -> Evaluation:
    """Return the evaluation of the first seed, which figures show."""
    return shop.evaluation(data, shop.config(data, method))


# -- curves and bars of several methods -----------------------------------------------------------


def _areas(shop: Workshop, data: str, methods: tuple[str, ...]) -> Numbers:
    return {
        name: {
            method: [one["ood"][name]["scores"]["entropy"]["auroc"] for one in shop.evaluations(data, method)]
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
    first = {name: max(each, key=lambda method: np.mean(each[method])) for name, each in numbers.items()}
    return " ".join(f"On {name} the curve of {METHODS[method]} is highest." for name, method in first.items())


def _curves(shop: Workshop, data: str) -> dict[str, Figure]:
    from randomset.report.comparison_figures import plot_curves

    results = {METHODS[method]: _first(shop, data, method) for method in SHOWN}
    return {name: plot_curves(results, name, note=", first seed") for name in DATA[data]}


def _ratios(shop: Workshop) -> Numbers:
    found: Numbers = {}
    for data, unknown in DATA.items():
        for name in unknown:
            found[f"{data} → {name}"] = {
                method: [
                    one["ood"][name]["scores"]["entropy"]["unknown"]["mean"]
                    / one["test"]["scores"]["entropy"]["mean"]
                    for one in shop.evaluations(data, method)
                ]
                for method in METHODS
            }
    return found


def _ratio_tables(numbers: Numbers) -> list[Table]:
    rows = tuple(
        (name, *(over_seeds(each[method], 1, 1) for method in METHODS)) for name, each in numbers.items()
    )
    note = "Mean entropy on unknown inputs, divided by that on test inputs."
    return [Table("Ratio of entropies", ("data", *METHODS.values()), rows, note)]


def _ratio_verdict(numbers: Numbers) -> str:
    best = [max(METHODS, key=lambda method: np.mean(each[method])) for each in numbers.values()]
    return (
        f"RS-NN has the largest ratio in {best.count('rsnn')} of {len(best)} cases; the paper says: in all."
    )


def _bars(shop: Workshop) -> dict[str, Figure]:
    from randomset.report.comparison_figures import plot_entropies

    return {
        data: plot_entropies({METHODS[m]: _first(shop, data, m) for m in METHODS}, f", {data}, first seed")
        for data in DATA
    }


# -- one random-set network -----------------------------------------------------------------------


def _right_and_wrong(shop: Workshop, score: str) -> Numbers:
    """Means of a score over right and wrong answers on CIFAR-10."""
    found: Numbers = {"right": [], "wrong": []}
    for one in shop.evaluations("cifar10"):
        right = one.predictions["test"].labels == one.labels["test"]
        values = one.predictions["test"].scores[score].double()
        for name, which in (("right", right), ("wrong", ~right)):
            found[name].append(values[which].mean().item() if which.any() else None)
    return found


def _right_and_wrong_tables(numbers: Numbers) -> list[Table]:
    rows = tuple((name, over_seeds(numbers[name], 1, 3)) for name in ("right", "wrong"))
    return [Table("Right and wrong answers on CIFAR-10", ("answers", "mean credal width"), rows)]


def _right_and_wrong_verdict(numbers: Numbers) -> str:
    wider = all(
        wrong is None or right is None or wrong > right
        for right, wrong in zip(numbers["right"], numbers["wrong"], strict=True)
    )
    return (
        f"Wrong answers {'have' if wider else 'do not have'} the wider credal sets; in the paper they have."
    )


def _correlations(shop: Workshop, score: str) -> Numbers:
    """Rank correlation of a score with the confidence, on test data and unknown data."""
    from scipy.stats import spearmanr

    found: Numbers = {name: [] for name in ("test", *DATA["cifar10"])}
    for one in shop.evaluations("cifar10"):
        for name, values in found.items():
            prediction = one.predictions[name]
            values.append(float(spearmanr(prediction.confidence, prediction.scores[score]).statistic))
    return found


def _correlation_tables(numbers: Numbers) -> list[Table]:
    rows = tuple((name, over_seeds(values, 1, 3)) for name, values in numbers.items())
    return [Table("Rank correlation with confidence", ("data", "Spearman's ρ"), rows)]


def _correlation_verdict(score: str) -> Callable[[Numbers], str]:
    def verdict(numbers: Numbers) -> str:
        strongest = max(abs(float(np.mean(values))) for values in numbers.values())
        claim = "is closely tied" if score == "entropy" else "is not tied"
        said = f"The paper says that the {score} {claim} to the confidence"
        return f"{said}; the strongest rank correlation here is {strongest:.2f} in size."

    return verdict


def _report(name: str, data: str, *options: Any) -> Callable[[Workshop, Numbers], dict[str, Figure]]:
    """Draw the first seed's evaluation with one of the report's functions."""

    def draw(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
        from randomset.report import detection_figures, evaluation_figures

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
        f"Distribution of entropy, {data} and unknown inputs",
        data,
        measure=lambda shop: _areas(shop, data, ("rsnn",)),
        tables=_area_tables,
        verdict=lambda numbers: "Unknown inputs have the larger entropies wherever the AUROC exceeds 50 %.",
        figures=_report("plot_densities", data, "entropy"),
    )


def _intervals(shop: Workshop) -> Numbers:
    found: Numbers = {"width": [], "inside": []}
    for one in shop.evaluations("cifar10"):
        prediction = one.predictions["test"]
        found["width"].append(prediction.scores["credal width"].double().mean().item())
        assert prediction.lower is not None
        assert prediction.upper is not None
        bounds = (prediction.lower, prediction.upper)
        low, high = (bound.gather(1, prediction.labels[:, None])[:, 0] for bound in bounds)
        within = (low <= prediction.confidence + 1e-6) & (prediction.confidence <= high + 1e-6)
        found["inside"].append(within.double().mean().item())
    return found


def _interval_tables(numbers: Numbers) -> list[Table]:
    row = (over_seeds(numbers["width"], 1, 4), over_seeds(numbers["inside"]))
    return [Table("Bounds of the most likely class", ("mean width", "BetP between them, %"), (row,))]


EXHIBITS = (
    _single(
        "figure-6",
        "Credal width of right and wrong answers",
        "cifar10",
        measure=lambda shop: _right_and_wrong(shop, "credal width"),
        tables=_right_and_wrong_tables,
        verdict=_right_and_wrong_verdict,
        figures=_report("plot_densities", "cifar10", "credal width"),
    ),
    _single(
        "figure-7",
        "Lower and upper probability of 100 samples",
        "cifar10",
        measure=_intervals,
        tables=_interval_tables,
        verdict=lambda numbers: "The pignistic probability lies between its bounds, as it must.",
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
        "Credal width of every class, right and wrong",
        "cifar10",
        measure=lambda shop: _right_and_wrong(shop, "credal width"),
        tables=_right_and_wrong_tables,
        verdict=_right_and_wrong_verdict,
        figures=_report("plot_widths_by_class", "cifar10"),
    ),
    *(
        _single(
            id,
            f"The {score} against the confidence",
            "cifar10",
            measure=lambda shop, score=score: _correlations(shop, score),
            tables=_correlation_tables,
            verdict=_correlation_verdict(score),
            figures=_report("plot_against_confidence", "cifar10"),
        )
        for id, score in (("figure-24", "entropy"), ("figure-25", "credal width"))
    ),
)
