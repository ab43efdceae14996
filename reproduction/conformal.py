"""Figures 8 to 11: conformal sets of a random-set network, with their threshold, coverage and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from randomset.evaluation.conformal import Conformal
from randomset.evaluation.tables import Table
from reproduction.exhibit import Exhibit, Numbers, mean_of, over_seeds
from reproduction.measures import every_model
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXHIBITS"]

ALPHA = 0.05
SCORE: Literal["1 - Pl"] = "1 - Pl"


def _rows(shop: Workshop) -> Numbers:
    """Coverage and size over all classes and for each, by the paper's score 1 − Pl."""
    rows = []
    for one in shop.evaluations("cifar10"):
        found = next(r for r in one["conformal"]["rows"] if r["score"] == SCORE and not r["by_class"])
        rows.append(found)
    classes = shop.evaluations("cifar10")[0].classes
    keys = ("coverage", "size", "empty")
    return {
        **{key: [row[key] for row in rows] for key in keys},
        "classes": {
            name: {
                "coverage": [row["class_coverage"][place] for row in rows],
                "size": [row["class_size"][place] for row in rows],
            }
            for place, name in enumerate(classes)
        },
    }


def _tables(numbers: Numbers) -> list[Table]:
    rows = [("all", over_seeds(numbers["coverage"]), over_seeds(numbers["size"], 1, 3))]
    rows += [
        (name, over_seeds(one["coverage"]), over_seeds(one["size"], 1, 3))
        for name, one in numbers["classes"].items()
    ]
    note = "Wanted: 95 % over all classes; calibrated on data that nothing else has seen."
    return [
        Table("Conformal sets by 1 − Pl, CIFAR-10", ("class", "coverage, %", "mean size"), tuple(rows), note)
    ]


def _verdict(numbers: Numbers) -> str:
    lowest = min(numbers["classes"].items(), key=lambda pair: mean_of(pair[1]["coverage"]))
    return (
        f"The sets hold the true class of {over_seeds(numbers['coverage'])} % with "
        f"{over_seeds(numbers['size'], 1)} classes on average; of the classes {lowest[0]} is covered least, "
        f"{over_seeds(lowest[1]['coverage'])} %: "
        "the guarantee is over all of them together."
    )


def _figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.detection_figures import plot_conformal

    return {"figure": plot_conformal(shop.evaluation("cifar10", shop.config("cifar10")), SCORE)}


def _two_sets(shop: Workshop) -> Numbers:
    """The conformal sets of a sure and of an unsure sample, with their probabilities."""
    result = shop.evaluation("cifar10", shop.config("cifar10"))
    held = result.predictions.get("calibration", result.predictions.get("validation"))
    labels = result.labels.get("calibration", result.labels.get("validation"))
    tested = result.predictions["test"]
    assert held is not None
    assert labels is not None
    sets = Conformal(held, labels, score=SCORE).sets(tested, ALPHA)
    entropy = tested.scores["entropy"]
    places = {"sure": int(entropy.argmin()), "unsure": int(entropy.argsort()[int(0.95 * len(entropy))])}
    return {
        name: {
            "label": result.classes[int(result.labels["test"][place])],
            "set": [result.classes[int(c)] for c in sets[place].nonzero()[:, 0]],
            "probabilities": dict(zip(result.classes, tested.probabilities[place].tolist(), strict=True)),
        }
        for name, place in places.items()
    }


def _two_tables(numbers: Numbers) -> list[Table]:
    rows = tuple((name, one["label"], ", ".join(one["set"])) for name, one in numbers.items())
    return [Table("Two conformal sets", ("sample", "label", "set"), rows, "First seed.")]


def _two_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.axes import panels

    figure, axes = panels(1, 2, (10, 3.6))
    for ax, (name, one) in zip(axes, numbers.items(), strict=True):
        names, values = zip(*one["probabilities"].items(), strict=True)
        colours = ["tab:blue" if who in one["set"] else "0.7" for who in names]
        ax.bar(range(len(names)), values, color=colours)
        ax.set_xticks(range(len(names)), names, rotation=45)
        ax.set_ylabel("pignistic probability")
        ax.set_title(f"{name}, label {one['label']}; blue: in the set")
    return {"figure": figure}


def _threshold(shop: Workshop) -> Numbers:
    """The scores of the calibration data, and the level that 95 % of them stay below."""
    result = shop.evaluation("cifar10", shop.config("cifar10"))
    held = result.predictions.get("calibration", result.predictions.get("validation"))
    labels = result.labels.get("calibration", result.labels.get("validation"))
    assert held is not None
    assert held.upper is not None
    assert labels is not None
    scores = 1 - held.upper.gather(1, labels[:, None])[:, 0].double()
    count = len(scores)
    rank = min(int(torch.ceil(torch.tensor((count + 1) * (1 - ALPHA))).item()), count)
    return {"samples": count, "threshold": scores.sort().values[rank - 1].item(), "scores": scores.tolist()}


def _threshold_tables(numbers: Numbers) -> list[Table]:
    row = (str(numbers["samples"]), f"{numbers['threshold']:.4f}")
    return [
        Table("Threshold of 1 − Pl, CIFAR-10", ("calibration samples", "threshold"), (row,), "First seed.")
    ]


def _threshold_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.axes import panels

    figure, (ax,) = panels(1, 1, (7, 4))
    ax.hist(numbers["scores"], 40, log=True)
    ax.axvline(numbers["threshold"], color="tab:red", linestyle="--", label="95 % stay below")
    ax.set_xlabel("1 − Pl of the true class")
    ax.set_ylabel("calibration samples")
    ax.legend()
    return {"figure": figure}


def _of(id: str, title: str, measure: Any, tables: Any, verdict: Any, figures: Any, seeds: bool) -> Exhibit:
    return Exhibit(
        id=id,
        title=title,
        data=("cifar10",),
        models=lambda shop: every_model(shop, ("cifar10",), ("rsnn",)) if seeds else [shop.config("cifar10")],
        measure=measure,
        tables=tables,
        verdict=verdict,
        figures=figures,
    )


EXHIBITS = (
    _of(
        "figure-8",
        "Two conformal sets",
        _two_sets,
        _two_tables,
        lambda numbers: (
            "An unsure sample gets a larger set than a sure one, as in the paper."
            if len(numbers["unsure"]["set"]) > len(numbers["sure"]["set"])
            else "Here the unsure sample gets no larger set than the sure one."
        ),
        _two_figure,
        False,
    ),
    _of(
        "figure-9",
        "Threshold of the conformal score",
        _threshold,
        _threshold_tables,
        lambda numbers: "The threshold is the quantile with the correction for finite samples.",
        _threshold_figure,
        False,
    ),
    _of("figure-10", "Coverage of conformal sets by class", _rows, _tables, _verdict, _figure, True),
    _of("figure-11", "Size of conformal sets by class", _rows, _tables, _verdict, _figure, True),
)
