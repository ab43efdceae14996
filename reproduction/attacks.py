"""Tables 13 and 14, Figures 2 and 17: attacks, the paper's and those that a flat loss cannot stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from randomset.evaluation.attacks import fgsm
from randomset.evaluation.predictor import as_predictor
from randomset.evaluation.robustness import EPSILONS, belief_objective
from randomset.evaluation.sweeps import pixels_of
from randomset.evaluation.tables import Table
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, over_seeds
from reproduction.measures import beside, every_model
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXHIBITS"]

DATA = ("mnist", "cifar10")
SHOWN = ("softmax", "rsnn", "laplace-bridge", "epinet")


def _attacked(shop: Workshop) -> Numbers:
    """Accuracy by data set, method, attack and ε, and how many images each seed was attacked on."""
    numbers: Numbers = {}
    for data in DATA:
        for method in SHOWN:
            for seed in shop.seeds:
                twin = None if method == "softmax" else shop.config(data, "softmax", seed)
                result = shop.evaluation(data, shop.config(data, method, seed), attacks=True, surrogate=twin)
                kept = numbers.setdefault(data, {}).setdefault(method, {})
                numbers["samples"] = result["changed_samples"]
                for row in result["attacks"]:
                    by = kept.setdefault(row["attack"], {}).setdefault(f"{row['epsilon']:g}", [])
                    by.append(row["accuracy"])
    return numbers


def _tables(paper: dict[str, Any], start: str) -> Any:
    def tables(numbers: Numbers) -> list[Table]:
        found = []
        epsilons = [float(text) for text in numbers["mnist"]["rsnn"]["all of them"]]
        for data in DATA:
            rows = []
            for method in SHOWN:
                clean = numbers[data][method]["none"]["0"]
                for attack, levels in numbers[data][method].items():
                    if not (attack.startswith(start) or attack == "all of them"):
                        continue
                    cells = [over_seeds(clean)]
                    for epsilon in epsilons:
                        place = EPSILONS.index(epsilon) + 1
                        theirs = paper[data][method][place] if _is_printed(attack, method) else None
                        cells.append(beside(over_seeds(levels.get(f"{epsilon:g}")), theirs))
                    rows.append((METHODS[method], attack, *cells))
            columns = ("method", "attack", "ε = 0", *(f"{epsilon:g}" for epsilon in epsilons))
            note = (
                f"Accuracy, %, of {numbers['samples']} images of each seed; in brackets the paper's, whose "
                "attack follows the model's own loss. "
                "“All of them” counts an input only if it stands against every attack, also those not shown."
            )
            found.append(Table(f"Attacks on {data}", columns, tuple(rows), note))
        return found

    return tables


def _is_printed(attack: str, method: str) -> bool:
    """Say whether an attack is the paper's: for RS-NN the authors' code clips beliefs."""
    return attack.endswith("own loss clipped" if method == "rsnn" else "own loss")


def _verdict(numbers: Numbers) -> str:
    said, misled = [], False
    last = f"{EPSILONS[-1]:g}"
    for data in DATA:
        ours, theirs = numbers[data]["rsnn"], numbers[data]["softmax"]
        shares = (ours["PGD, own loss clipped"], ours["all of them"], theirs["all of them"])
        paper, all_ours, all_theirs = (100 * mean_of(one[last]) for one in shares)
        misled |= paper > all_ours + 5
        said.append(
            f"on {data} {paper:.1f} % of RS-NN's answers stand against the paper's PGD, {all_ours:.1f} % "
            f"against all attacks (CNN: {all_theirs:.1f} %)"
        )
    end = (
        "A loss that is flat where the network is sure misleads the paper's attack, but not the others."
        if misled
        else "The paper's robustness does not appear: its attack is not misled here, since these networks "
        "are not so sure that their loss is flat."
    )
    return f"At ε = {last}, {'; '.join(said)}. {end}"


def _confidence(shop: Workshop) -> Numbers:
    """Confidence of RS-NN and CNN in the answers to images that FGSM changed."""
    numbers: Numbers = {}
    for method in ("rsnn", "softmax"):
        labels, changed = _changed(shop, method, (0.01, 0.05))
        predictor = as_predictor(shop.model(shop.config("mnist", method)))
        for epsilon, each in changed.items():
            one = predictor(each)
            right = one.labels == labels
            numbers.setdefault(method, {})[f"{epsilon:g}"] = {
                "accuracy": right.double().mean().item(),
                "right": one.confidence[right].tolist(),
                "wrong": one.confidence[~right].tolist(),
            }
    return numbers


def _changed(shop: Workshop, method: str, epsilons: tuple[float, ...]) -> Any:
    config = shop.config("mnist", method)
    tested, _, _ = shop.data(config)
    count = min(len(tested), shop.scale.changed_samples)
    images, labels = pixels_of(tested.inputs[:count]), tested.labels[:count]
    model = shop.model(config)
    if method == "rsnn":
        objective = belief_objective(model)
    else:
        objective = lambda x, y: torch.nn.functional.cross_entropy(model(x), y, reduction="none")  # noqa: E731
    return labels, {epsilon: fgsm(objective, images, labels, epsilon) for epsilon in epsilons}


def _confidence_tables(numbers: Numbers) -> list[Table]:
    rows = []
    for method, levels in numbers.items():
        for epsilon, found in levels.items():
            means = [f"{mean_of(found[name]):.3f}" if found[name] else "–" for name in ("right", "wrong")]
            rows.append((METHODS[method], epsilon, f"{100 * found['accuracy']:.2f}", *means))
    columns = ("method", "ε", "accuracy, %", "confidence where right", "where wrong")
    return [Table("Confidence under FGSM on MNIST", columns, tuple(rows), "First seed.")]


def _confidence_verdict(numbers: Numbers) -> str:
    ours, theirs = (mean_of(numbers[method]["0.05"]["wrong"]) for method in ("rsnn", "softmax"))
    held = "as the paper says" if ours < theirs else "against the paper"
    return f"Fooled at ε = 0.05, RS-NN is {ours:.2f} confident on average and CNN {theirs:.2f}: {held}."


def _confidence_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.axes import panels

    figure, axes = panels(1, 2, (10, 3.6))
    for ax, epsilon in zip(axes, ("0.01", "0.05"), strict=True):
        for method in numbers:
            found = numbers[method][epsilon]
            for name, style in (("right", "-"), ("wrong", "--")):
                if found[name]:
                    label = f"{METHODS[method]}, {name}"
                    ax.hist(found[name], 30, range=(0, 1), histtype="step", linestyle=style, label=label)
        ax.set_yscale("log")  # nearly all are sure
        ax.set_title(f"ε = {epsilon}")
        ax.set_xlabel("confidence")
    axes[0].set_ylabel("images")
    axes[0].legend()
    return {"figure": figure}


def _examples(shop: Workshop) -> Numbers:
    labels, changed = _changed(shop, "rsnn", EPSILONS)
    predictor = as_predictor(shop.model(shop.config("mnist")))
    return {
        f"{epsilon:g}": {
            "label": int(labels[0]),
            "answer": int(predictor(each[:1]).labels[0]),
            "image": [[round(value, 3) for value in row] for row in each[0, 0].tolist()],
        }
        for epsilon, each in changed.items()
    }


def _example_tables(numbers: Numbers) -> list[Table]:
    rows = tuple((epsilon, str(one["label"]), str(one["answer"])) for epsilon, one in numbers.items())
    return [Table("An image that FGSM changed", ("ε", "label", "RS-NN's answer"), rows)]


def _example_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.axes import panels

    figure, axes = panels(1, len(numbers), (2 * len(numbers), 2.4))
    for ax, (epsilon, one) in zip(axes, numbers.items(), strict=True):
        ax.imshow(one["image"], cmap="gray", vmin=0, vmax=1)
        ax.set_title(f"ε = {epsilon}: {one['answer']}")
        ax.set_axis_off()
    return {"figure": figure}


def _of_attacks(id: str, name: str, paper: dict[str, Any]) -> Exhibit:
    return Exhibit(
        id=id,
        title=f"Accuracy under {name}, and under attacks that cannot be misled",
        data=DATA,
        models=lambda shop: every_model(shop, DATA, SHOWN),
        measure=_attacked,
        tables=_tables(paper, name),
        verdict=_verdict,
    )


EXHIBITS = (
    _of_attacks("table-13", "FGSM", printed.FGSM),
    _of_attacks("table-14", "PGD", printed.PGD),
    Exhibit(
        id="figure-2",
        title="Confidence under FGSM",
        data=("mnist",),
        models=lambda shop: [shop.config("mnist", method) for method in ("rsnn", "softmax")],
        measure=_confidence,
        tables=_confidence_tables,
        verdict=_confidence_verdict,
        figures=_confidence_figure,
    ),
    Exhibit(
        id="figure-17",
        title="Images that FGSM changed",
        data=("mnist",),
        models=lambda shop: [shop.config("mnist")],
        measure=_examples,
        tables=_example_tables,
        verdict=lambda numbers: "The images show what ε means; they make no claim.",
        figures=_example_figure,
    ),
)
