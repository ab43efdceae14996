"""Figures 8 to 11: conformal prediction sets of RS-NN, their threshold, coverage and size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from randomset.evaluation import Evaluation
from randomset.evaluation.conformal import Conformal
from randomset.evaluation.predictor import Prediction
from randomset.evaluation.tables import Table
from randomset.report.axes import panels
from randomset.report.detection_figures import plot_conformal
from reproduction.exhibit import Exhibit, Numbers, mean_of, over_seeds
from reproduction.measures import every_model
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXHIBITS"]

ALPHA = 0.05
SCORE: Literal["1 - Pl"] = "1 - Pl"
TITLES = {"sure": "certain", "unsure": "uncertain"}


def _rows(shop: Workshop) -> Numbers:
    """Measure coverage and size, overall and by class, with the paper's score 1 − Pl."""
    results = shop.evaluations("cifar10")
    rows = [
        next(row for row in result["conformal"]["rows"] if row["score"] == SCORE and not row["by_class"])
        for result in results
    ]
    return {
        **{key: [row[key] for row in rows] for key in ("coverage", "size", "empty")},
        "classes": {
            name: {
                "coverage": [row["class_coverage"][label] for row in rows],
                "size": [row["class_size"][label] for row in rows],
            }
            for label, name in enumerate(results[0].classes)
        },
    }


def _tables(numbers: Numbers) -> list[Table]:
    rows = [("all", over_seeds(numbers["coverage"]), over_seeds(numbers["size"], 1, 3))]
    rows += [
        (name, over_seeds(row["coverage"]), over_seeds(row["size"], 1, 3))
        for name, row in numbers["classes"].items()
    ]
    note = "Target: 95 % over all classes; calibrated on held-out data."
    columns = ("class", "coverage, %", "mean size")
    return [Table("Conformal sets with score 1 − Pl, CIFAR-10", columns, tuple(rows), note)]


def _verdict(numbers: Numbers) -> str:
    coverage = {name: row["coverage"] for name, row in numbers["classes"].items()}
    lowest = min(coverage, key=lambda name: mean_of(coverage[name]))
    return (
        f"The sets contain the true class of {over_seeds(numbers['coverage'])} % of samples, with "
        f"{over_seeds(numbers['size'], 1)} classes on average. The coverage is lowest for {lowest}, "
        f"{over_seeds(coverage[lowest])} %: the guarantee holds over all classes, not for each."
    )


def _figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    return {"figure": plot_conformal(shop.evaluation("cifar10", shop.config("cifar10")), SCORE)}


def _held_out(result: Evaluation) -> tuple[Prediction, Tensor]:
    """Return the predictions and labels of the calibration data, else of the validation data."""
    name = "calibration" if "calibration" in result.predictions else "validation"
    return result.predictions[name], result.labels[name]


def _two_sets(shop: Workshop) -> Numbers:
    """Compute the conformal sets of a certain and an uncertain sample."""
    result = shop.evaluation("cifar10", shop.config("cifar10"))
    tested = result.predictions["test"]
    sets = Conformal(*_held_out(result), score=SCORE).sets(tested, ALPHA)
    entropy = tested.scores["entropy"]
    rows = {"sure": int(entropy.argmin()), "unsure": int(entropy.argsort()[int(0.95 * len(entropy))])}
    return {
        name: {
            "label": result.classes[int(result.labels["test"][row])],
            "set": [result.classes[int(label)] for label in sets[row].nonzero()[:, 0]],
            "probabilities": dict(zip(result.classes, tested.probabilities[row].tolist(), strict=True)),
        }
        for name, row in rows.items()
    }


def _two_tables(numbers: Numbers) -> list[Table]:
    rows = tuple(
        (TITLES[name], sample["label"], ", ".join(sample["set"])) for name, sample in numbers.items()
    )
    return [Table("Two conformal sets", ("sample", "label", "set"), rows, "First seed.")]


def _two_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    figure, axes = panels(1, 2, (10, 3.6))
    for ax, (title, sample) in zip(axes, numbers.items(), strict=True):
        names, values = zip(*sample["probabilities"].items(), strict=True)
        colours = ["tab:blue" if name in sample["set"] else "0.7" for name in names]
        ax.bar(range(len(names)), values, color=colours)
        ax.set_xticks(range(len(names)), names, rotation=45)
        ax.set_ylabel("pignistic probability")
        ax.set_title(f"{TITLES[title]}, label {sample['label']}; blue: in the set")
    return {"figure": figure}


def _threshold(shop: Workshop) -> Numbers:
    """Compute the scores of the calibration data and their conformal quantile."""
    held_out, labels = _held_out(shop.evaluation("cifar10", shop.config("cifar10")))
    assert held_out.upper is not None
    scores = 1 - held_out.upper.gather(1, labels[:, None])[:, 0].double()
    count = len(scores)
    rank = min(int(torch.ceil(torch.tensor((count + 1) * (1 - ALPHA))).item()), count)
    return {"samples": count, "threshold": scores.sort().values[rank - 1].item(), "scores": scores.tolist()}


def _threshold_tables(numbers: Numbers) -> list[Table]:
    row = (str(numbers["samples"]), f"{numbers['threshold']:.4f}")
    columns = ("calibration samples", "threshold")
    return [Table("Threshold of the score 1 − Pl, CIFAR-10", columns, (row,), "First seed.")]


def _threshold_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    figure, (ax,) = panels(1, 1, (7, 4))
    ax.hist(numbers["scores"], 40, log=True)
    ax.axvline(numbers["threshold"], color="tab:red", linestyle="--", label="95 % quantile")
    ax.set_xlabel("1 − Pl of the true class")
    ax.set_ylabel("calibration samples")
    ax.legend()
    return {"figure": figure}


def _two_verdict(numbers: Numbers) -> str:
    if len(numbers["unsure"]["set"]) > len(numbers["sure"]["set"]):
        return "The uncertain sample has a larger set than the certain one, as in the paper."
    return "Unlike in the paper, the uncertain sample does not have a larger set than the certain one."


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
    _of("figure-8", "Two conformal sets", _two_sets, _two_tables, _two_verdict, _two_figure, False),
    _of(
        "figure-9",
        "Threshold of the conformal score",
        _threshold,
        _threshold_tables,
        lambda numbers: "The threshold is the quantile with the finite-sample correction.",
        _threshold_figure,
        False,
    ),
    _of("figure-10", "Coverage of conformal sets by class", _rows, _tables, _verdict, _figure, True),
    _of("figure-11", "Size of conformal sets by class", _rows, _tables, _verdict, _figure, True),
)
