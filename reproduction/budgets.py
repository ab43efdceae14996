"""Tables 16, 17 and 18, Figure 28: the number of focal sets, and how they are chosen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from randomset._core.checks import braces
from randomset.belief.budget import Budget
from randomset.budgeting.overlap import number_of_sets
from randomset.errors import FileFormatError
from randomset.evaluation import evaluate
from randomset.evaluation.predictor import Prediction
from randomset.evaluation.tables import Table
from randomset.report.axes import class_colours, panels
from randomset.runs.data import NetworkInputs
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, moments, over_seeds
from reproduction.measures import beside, every_model, quality
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXHIBITS"]

EVERY = number_of_sets(10) - 1  # all sets of ten classes except Θ, which every prediction includes
EVERY_SET: dict[str, dict[str, Any]] = {
    "every set": {"num_sets": EVERY},
    "every set, α = β = 0": {"num_sets": EVERY, "alpha": 0.0, "beta": 0.0},
}
UNKNOWN = ("svhn", "intel")


def _table(title: str, models: dict[str, Numbers], paper: dict[str, str], note: str = "") -> Table:
    """Tabulate the quality of models; `paper` maps their names to rows of the paper's tables."""
    rows = []
    for name, numbers in models.items():
        nothing: Any = (None, None, None, None, {})
        accuracy, ece, entropy, width, paper_unknown = printed.BUDGETS.get(paper.get(name, ""), nothing)
        cells = [
            beside(over_seeds(numbers["accuracy"]), accuracy),
            beside(over_seeds(numbers["ece"], 1, 4), ece, 4),
            beside(moments(numbers["entropy"]), entropy, 3),
            beside(moments(numbers["width"]), width, 3),
        ]
        for unknown in UNKNOWN:
            measured = numbers["unknown"][unknown]
            auroc, auprc, entropy, width = paper_unknown.get(unknown, (None,) * 4)
            cells += [
                beside(over_seeds(measured["auroc"]), auroc),
                beside(over_seeds(measured["auprc"]), auprc),
                beside(moments(measured["entropy"]), entropy, 3),
                beside(moments(measured["width"]), width, 3),
            ]
        rows.append((name, *cells))
    columns = ["sets", "accuracy, %", "ECE", "entropy, bits", "credal width"]
    for unknown in UNKNOWN:
        columns += [f"{unknown}: AUROC, %", "AUPRC, %", "entropy, bits", "credal width"]
    note = f"The paper's values are in parentheses. {note}".strip()
    return Table(title, tuple(columns), tuple(rows), note)


# -- Table 16 -------------------------------------------------------------------------------------


def _power_set(shop: Workshop) -> Numbers:
    """Compare a budget with the power set, with negative masses clipped as in the paper or projected.

    The loss terms that penalise invalid masses sum over a thousand sets; α = β = 0 leaves the binary
    cross-entropy alone.
    """
    numbers = {"budget": quality(shop.evaluations("cifar10"))}
    for name, change in EVERY_SET.items():
        configs = [shop.config("cifar10", seed=seed, **change) for seed in shop.seeds]
        numbers[f"{name}, clip"] = quality([shop.evaluation("cifar10", config) for config in configs])
        numbers[f"{name}, projection"] = quality([_projected(shop, config) for config in configs])
    return numbers


def _projected(shop: Workshop, config: Any) -> Any:
    """Evaluate with masses projected onto the nearest valid belief function, instead of clipped."""
    network = shop.model(config)
    tested, held, _ = shop.data(config)
    _, unknown = shop.scale.setting("cifar10", shop.folder / "data")
    load = NetworkInputs(network, shop.trained(config).folder, strict=False)

    def predict(inputs: Any) -> Prediction:
        return Prediction.from_random_set(network.predict(inputs, repair="projection"))

    samples = {name: _subset(load(source, labelled=False), shop) for name, source in unknown.items()}
    return evaluate(
        predict, _subset(tested, shop), samples, validation=None if held is None else _subset(held, shop)
    )


def _subset(source: Any, shop: Workshop) -> Any:
    """Take fewer samples, since projecting onto 1,023 sets is slow."""
    return source.part(torch.arange(min(len(source), shop.scale.changed_samples)))


def _power_set_tables(numbers: Numbers) -> list[Table]:
    paper = {"budget": "20 sets", "every set, clip": "every set"}
    note = "The projection is measured on fewer samples."
    return [_table("A budget and the power set, CIFAR-10", numbers, paper, note)]


def _power_set_verdict(numbers: Numbers) -> str:
    accuracy = {name: 100 * mean_of(model["accuracy"]) for name, model in numbers.items()}
    budget, power_set = accuracy.pop("budget"), accuracy.pop("every set, clip")
    result = "is confirmed" if budget >= power_set else "is not confirmed"
    variants = ", ".join(
        f"{name.removeprefix('every set, ')} {value:.1f} %" for name, value in accuracy.items()
    )
    return (
        f"The paper's claim that a budget is more accurate than the power set {result}: {budget:.1f} % "
        f"against {power_set:.1f} %. Other variants of the power set: {variants}."
    )


# -- Tables 17 and 18, Figure 28 ----------------------------------------------------------------------

REDUCERS = {"t-SNE": "tsne", "UMAP": "umap", "PCA": "pca"}


def _shown(shop: Workshop) -> dict[str, str]:
    """Return the reducers to compare; scale tiny leaves out UMAP, which takes a minute to compile."""
    return {title: name for title, name in REDUCERS.items() if shop.scale.name != "tiny" or name != "umap"}


def _reducers(shop: Workshop) -> Numbers:
    return {title: quality(shop.evaluations("cifar10", reducer=name)) for title, name in _shown(shop).items()}


def _reducer_tables(numbers: Numbers) -> list[Table]:
    paper = {"t-SNE": "20 sets", "UMAP": "UMAP"}
    return [_table("Budgets chosen with t-SNE, UMAP and PCA, CIFAR-10", numbers, paper)]


def _reducer_verdict(numbers: Numbers) -> str:
    gaps, aurocs = [], []
    for name, model in numbers.items():
        pairs = zip(numbers["t-SNE"]["accuracy"], model["accuracy"], strict=True)
        if name != "t-SNE":
            gaps.append(f"{name} {over_seeds([tsne - other for tsne, other in pairs])}")
        auroc = np.mean([mean_of(model["unknown"][unknown]["auroc"]) for unknown in UNKNOWN])
        aurocs.append(f"{name} {100 * auroc:.2f}")
    return (
        f"Accuracy of t-SNE minus that of the other reducers, in points: {', '.join(gaps)}; mean AUROC over "
        f"both unknown data sets: {', '.join(aurocs)}. In the paper, t-SNE and UMAP differ by less than a "
        "point in both."
    )


def _clusters(shop: Workshop) -> Numbers:
    run = shop.trained(shop.config("cifar10")).folder
    budget = Budget.load(run / "budget.json")
    names = [braces(list(budget.names_of(i))) for i in range(budget.num_classes, len(budget))]
    try:
        clusters = json.loads((run / "clusters.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError(
            "clusters.json cannot be read", got=f"{run}: {error}", remedy="Delete the run"
        ) from None
    return {"sets": names, "overlaps": (budget.origin or {}).get("overlaps", []), "clusters": clusters}


def _cluster_tables(numbers: Numbers) -> list[Table]:
    ranked = sorted(zip(numbers["sets"], numbers["overlaps"], strict=True), key=lambda pair: -pair[1])
    rows = tuple((name, f"{overlap:.4f}") for name, overlap in ranked)
    return [
        Table("Overlap of the chosen sets, CIFAR-10", ("set", "intersection over union"), rows, "First seed.")
    ]


def _cluster_verdict(numbers: Numbers) -> str:
    best = numbers["sets"][int(np.argmax(numbers["overlaps"]))] if numbers["overlaps"] else "none"
    return f"The set with the largest overlap is {best}; the figure shows two of three dimensions."


def _cluster_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    clusters = numbers["clusters"]
    figure, (ax,) = panels(1, 1, (7, 6))
    colours = class_colours(len(clusters["classes"]))
    for x, y, _, label in clusters["points"]:
        ax.plot(x, y, ".", color=colours[label], markersize=2)
    angles = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    for ellipsoid in clusters["ellipsoids"]:
        axes = np.array(ellipsoid["axes"])[:2]  # projected along the third axis
        outline = clusters["radius"] * np.linalg.cholesky(axes @ axes.T) @ circle
        x, y = outline + np.array(ellipsoid["centre"][:2])[:, None]
        ax.plot(x, y, color=colours[ellipsoid["of"]], label=clusters["classes"][ellipsoid["of"]])
    ax.set_xlabel("dimension 1")
    ax.set_ylabel("dimension 2")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return {"figure": figure}


EXHIBITS = (
    Exhibit(
        id="table-16",
        title="A budget and the power set",
        data=("cifar10",),
        models=lambda shop: [
            config
            for change in ({}, *EVERY_SET.values())
            for config in every_model(shop, ("cifar10",), ("rsnn",), **change)
        ],
        measure=_power_set,
        tables=_power_set_tables,
        verdict=_power_set_verdict,
    ),
    *(
        Exhibit(
            id=id,
            title=f"Budgets chosen with t-SNE and UMAP: {subject}",
            data=("cifar10",),
            models=lambda shop: [
                config
                for name in _shown(shop).values()
                for config in every_model(shop, ("cifar10",), ("rsnn",), reducer=name)
            ],
            measure=_reducers,
            tables=_reducer_tables,
            verdict=_reducer_verdict,
        )
        for id, subject in (
            ("table-17", "accuracy and OOD detection"),
            ("table-18", "entropy and credal width"),
        )
    ),
    Exhibit(
        id="figure-28",
        title="Clusters and ellipses of the classes",
        data=("cifar10",),
        models=lambda shop: [shop.config("cifar10")],
        measure=_clusters,
        tables=_cluster_tables,
        verdict=_cluster_verdict,
        figures=_cluster_figure,
    ),
)
