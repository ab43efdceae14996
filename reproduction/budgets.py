"""Tables 16, 17 and 18 and Figure 28: how many sets, and how they are chosen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from randomset.belief.budget import Budget
from randomset.belief.naming import braces
from randomset.budgeting.checks import number_of_sets
from randomset.errors import FileFormatError
from randomset.evaluation import evaluate
from randomset.evaluation.predictor import Prediction
from randomset.evaluation.tables import Table
from randomset.runs.inputs import NetworkInputs
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, moments, over_seeds
from reproduction.measures import beside, every_model, quality
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXHIBITS"]

EVERY = number_of_sets(10) - 1  # every set of ten classes but Θ, which is in every prediction anyway
EVERY_SET: dict[str, dict[str, Any]] = {
    "every set": {"num_sets": EVERY},
    "every set, α = β = 0": {"num_sets": EVERY, "alpha": 0.0, "beta": 0.0},
}
UNKNOWN = ("svhn", "intel")


def _table(title: str, rows: dict[str, Numbers], theirs: dict[str, str], note: str = "") -> Table:
    """Quality of several models; `theirs` says which row of the paper stands beside which of ours."""
    lines = []
    for name, ours in rows.items():
        nothing: Any = (None, None, None, None, {})
        accuracy, ece, entropy, width, far = printed.BUDGETS.get(theirs.get(name, ""), nothing)
        cells = [
            beside(over_seeds(ours["accuracy"]), accuracy),
            beside(over_seeds(ours["ece"], 1, 4), ece, 4),
            beside(moments(ours["entropy"]), entropy, 3),
            beside(moments(ours["width"]), width, 3),
        ]
        for unknown in UNKNOWN:
            found, printed_far = ours["unknown"][unknown], far.get(unknown, (None,) * 4)
            cells += [
                beside(over_seeds(found["auroc"]), printed_far[0]),
                beside(over_seeds(found["auprc"]), printed_far[1]),
                beside(moments(found["entropy"]), printed_far[2], 3),
                beside(moments(found["width"]), printed_far[3], 3),
            ]
        lines.append((name, *cells))
    columns = ["sets", "accuracy, %", "ECE", "entropy, bits", "width"]
    for unknown in UNKNOWN:
        columns += [f"{unknown}: AUROC, %", "AUPRC, %", "entropy, bits", "width"]
    return Table(title, tuple(columns), tuple(lines), f"In brackets the paper's. {note}".strip())


# -- Table 16 -------------------------------------------------------------------------------------


def _power_set(shop: Workshop) -> Numbers:
    """A budget, and every set: with negative masses clipped as in the paper, and with the better repair.

    The terms of the loss that punish invalid masses sum over a thousand sets; without them it is the plain
    binary cross-entropy.
    """
    numbers = {"budget": quality(shop.evaluations("cifar10"))}
    for name, change in EVERY_SET.items():
        configs = [shop.config("cifar10", seed=seed, **change) for seed in shop.seeds]
        numbers[f"{name}, clip"] = quality([shop.evaluation("cifar10", config) for config in configs])
        numbers[f"{name}, projection"] = quality([_projected(shop, config) for config in configs])
    return numbers


def _projected(shop: Workshop, config: Any) -> Any:
    """Measure with the nearest valid belief function instead of clipped masses."""
    network = shop.model(config)
    tested, held, _ = shop.data(config)
    _, unknown = shop.scale.setting("cifar10", shop.folder / "data")
    load = NetworkInputs(network, shop.trained(config).folder, strict=False)

    def predict(inputs: Any) -> Prediction:
        return Prediction.from_random_set(network.predict(inputs, repair="projection"))

    some = {name: _some(load(source, labelled=False), shop) for name, source in unknown.items()}
    return evaluate(
        predict, _some(tested, shop), some, validation=None if held is None else _some(held, shop)
    )


def _some(source: Any, shop: Workshop) -> Any:
    """As many samples as are changed elsewhere: a projection onto 1,023 sets takes its time."""
    import torch

    return source.part(torch.arange(min(len(source), shop.scale.changed_samples)))


def _power_set_tables(numbers: Numbers) -> list[Table]:
    theirs = {"budget": "20 sets", "every set, clip": "every set"}
    note = "The projection is measured on fewer samples."
    return [_table("A budget and every set, CIFAR-10", numbers, theirs, note)]


def _power_set_verdict(numbers: Numbers) -> str:
    share = {name: 100 * mean_of(found["accuracy"]) for name, found in numbers.items()}
    held = "held" if share["budget"] >= share["every set, clip"] else "did not hold"
    others = ", ".join(
        f"{name.removeprefix('every set, ')} {value:.1f} %"
        for name, value in share.items()
        if name not in ("budget", "every set, clip")
    )
    return (
        f"The paper's claim that a budget is more accurate than every set {held}: {share['budget']:.1f} % "
        f"against {share['every set, clip']:.1f} %. Other ways to use every set: {others}."
    )


# -- Tables 17 and 18, Figure 28 ----------------------------------------------------------------------

REDUCERS = {"t-SNE": "tsne", "UMAP": "umap", "PCA": "pca"}


def _shown(shop: Workshop) -> dict[str, str]:
    """At the smallest scale without UMAP, which compiles itself for a minute."""
    return {title: name for title, name in REDUCERS.items() if shop.scale.name != "tiny" or name != "umap"}


def _reducers(shop: Workshop) -> Numbers:
    return {title: quality(shop.evaluations("cifar10", reducer=name)) for title, name in _shown(shop).items()}


def _reducer_tables(numbers: Numbers) -> list[Table]:
    theirs = {"t-SNE": "20 sets", "UMAP": "UMAP"}
    return [_table("Budgets by t-SNE, UMAP and PCA, CIFAR-10", numbers, theirs)]


def _reducer_verdict(numbers: Numbers) -> str:
    gaps = []
    for name in numbers:
        pairs = zip(numbers["t-SNE"]["accuracy"], numbers[name]["accuracy"], strict=True)
        if name != "t-SNE":
            gaps.append(f"{over_seeds([a - b for a, b in pairs])} points of accuracy ahead of {name}")
    aurocs = {
        name: np.mean([mean_of(one["unknown"][u]["auroc"]) for u in UNKNOWN]) for name, one in numbers.items()
    }
    mean = ", ".join(f"{name} {100 * value:.2f}" for name, value in aurocs.items())
    return (
        f"t-SNE is {' and '.join(gaps)}; mean AUROC over both unknown sets: {mean}. In the paper they are "
        "alike within a point."
    )


def _clusters(shop: Workshop) -> Numbers:
    run = shop.trained(shop.config("cifar10")).folder
    budget = Budget.load(run / "budget.json")
    names = [braces(list(budget.names_of(i))) for i in range(budget.num_classes, len(budget))]
    try:
        clusters = json.loads((run / "clusters.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError(
            "the clusters of a run cannot be read", got=f"{run}: {error}", remedy="Delete the run"
        ) from None
    return {"sets": names, "overlaps": (budget.origin or {}).get("overlaps", []), "clusters": clusters}


def _cluster_tables(numbers: Numbers) -> list[Table]:
    ranked = sorted(zip(numbers["sets"], numbers["overlaps"], strict=True), key=lambda pair: -pair[1])
    rows = tuple((name, f"{overlap:.4f}") for name, overlap in ranked)
    return [
        Table("Sets that overlap most, CIFAR-10", ("set", "intersection over union"), rows, "First seed.")
    ]


def _cluster_verdict(numbers: Numbers) -> str:
    best = numbers["sets"][int(np.argmax(numbers["overlaps"]))] if numbers["overlaps"] else "none"
    return f"The set that overlaps most is {best}; the picture shows two of three dimensions."


def _cluster_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.axes import class_colours, panels

    clusters = numbers["clusters"]
    figure, (ax,) = panels(1, 1, (7, 6))
    colours = class_colours(len(clusters["classes"]))
    for x, y, _, owner in clusters["points"]:
        ax.plot(x, y, ".", color=colours[owner], markersize=2)
    turn = np.linspace(0, 2 * np.pi, 200)
    for one in clusters["ellipsoids"]:
        axes = np.array(one["axes"])[:2]  # seen along the third axis
        rim = clusters["radius"] * np.linalg.cholesky(axes @ axes.T) @ np.stack([np.cos(turn), np.sin(turn)])
        x, y = rim + np.array(one["centre"][:2])[:, None]
        ax.plot(x, y, color=colours[one["of"]], label=clusters["classes"][one["of"]])
    ax.set_xlabel("dimension 1")
    ax.set_ylabel("dimension 2")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)  # names at the rims would overlap
    return {"figure": figure}


EXHIBITS = (
    Exhibit(
        id="table-16",
        title="A budget and every set",
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
            title=f"Budgets by t-SNE and UMAP: {what}",
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
        for id, what in (("table-17", "accuracy and detection"), ("table-18", "entropy and width"))
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
