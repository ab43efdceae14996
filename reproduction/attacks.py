"""Tables 13 and 14, Figures 2 and 17: the paper's adversarial attacks, and stronger ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import cross_entropy

from randomset.evaluation.attacks import fgsm
from randomset.evaluation.predictor import as_predictor
from randomset.evaluation.robustness import EPSILONS, belief_objective, pixels_of
from randomset.evaluation.tables import Table
from randomset.report.axes import panels
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
Printed = Mapping[str, Mapping[str, tuple[float, ...]]]


# -- Tables 13 and 14 -----------------------------------------------------------------------------


def _attacked(shop: Workshop) -> Numbers:
    """Measure accuracy by data set, method, attack and ε."""
    numbers: Numbers = {}
    for data in DATA:
        for method in SHOWN:
            for seed in shop.seeds:
                twin = None if method == "softmax" else shop.config(data, "softmax", seed)
                result = shop.evaluation(data, shop.config(data, method, seed), attacks=True, surrogate=twin)
                attacks = numbers.setdefault(data, {}).setdefault(method, {})
                numbers["samples"] = result["changed_samples"]
                for row in result["attacks"]:
                    levels = attacks.setdefault(row["attack"], {})
                    levels.setdefault(f"{row['epsilon']:g}", []).append(row["accuracy"])
    return numbers


def _tables(paper: Printed, start: str) -> Callable[[Numbers], list[Table]]:
    """Return a function that shows the attacks whose name starts with `start`, and all attacks combined."""

    def tables(numbers: Numbers) -> list[Table]:
        epsilons = [float(text) for text in numbers["mnist"]["rsnn"]["all of them"]]
        note = (
            f"Accuracy in %, on {numbers['samples']} images per seed. In parentheses, the paper's values "
            "for attacks on the model's own loss. “All of them” counts an image only if it withstands every "
            "attack, including those not shown."
        )
        result = []
        for data in DATA:
            rows = []
            for method in SHOWN:
                clean = over_seeds(numbers[data][method]["none"]["0"])
                for attack, levels in numbers[data][method].items():
                    if not (attack.startswith(start) or attack == "all of them"):
                        continue
                    cells = []
                    for epsilon in epsilons:
                        value = paper[data][method][EPSILONS.index(epsilon) + 1]
                        accuracy = over_seeds(levels.get(f"{epsilon:g}"))
                        cells.append(beside(accuracy, value if _is_printed(attack, method) else None))
                    rows.append((METHODS[method], attack, clean, *cells))
            columns = ("method", "attack", "ε = 0", *(f"{epsilon:g}" for epsilon in epsilons))
            result.append(Table(f"Attacks on {data}", columns, tuple(rows), note))
        return result

    return tables


def _is_printed(attack: str, method: str) -> bool:
    """Return whether an attack is the paper's; for RS-NN, the authors' code clips the beliefs."""
    return attack.endswith("own loss clipped" if method == "rsnn" else "own loss")


def _verdict(numbers: Numbers) -> str:
    findings, masked = [], False
    last = f"{EPSILONS[-1]:g}"
    for data in DATA:
        rsnn, softmax = numbers[data]["rsnn"], numbers[data]["softmax"]
        attacks = (rsnn["PGD, own loss clipped"], rsnn["all of them"], softmax["all of them"])
        paper, combined, combined_cnn = (100 * mean_of(levels[last]) for levels in attacks)
        masked |= paper > combined + 5
        findings.append(
            f"on {data}, RS-NN keeps an accuracy of {paper:.1f} % under the paper's PGD and {combined:.1f} % "
            f"under all attacks combined (CNN: {combined_cnn:.1f} %)"
        )
    conclusion = (
        "The paper's attack fails where the loss of a confident network is flat; the other attacks do not."
        if masked
        else "The paper's robustness is not reproduced: these networks are not confident enough for their "
        "loss to be flat, so the paper's attack is as effective as the others."
    )
    return f"At ε = {last}: {'; '.join(findings)}. {conclusion}"


def _of_attacks(id: str, name: str, paper: Printed) -> Exhibit:
    return Exhibit(
        id=id,
        title=f"Accuracy under {name} and stronger attacks",
        data=DATA,
        models=lambda shop: every_model(shop, DATA, SHOWN),
        measure=_attacked,
        tables=_tables(paper, name),
        verdict=_verdict,
    )


# -- Figures 2 and 17: FGSM on MNIST, first seed ----------------------------------------------------


def _changed(shop: Workshop, method: str, epsilons: tuple[float, ...]) -> tuple[Tensor, dict[float, Tensor]]:
    """Attack test images with FGSM; return their labels, and the attacked images by ε."""
    config = shop.config("mnist", method)
    tested, _, _ = shop.data(config)
    count = min(len(tested), shop.scale.changed_samples)
    images, labels = pixels_of(tested.inputs[:count]), tested.labels[:count]
    model = shop.model(config)

    def softmax_objective(inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model(inputs), targets, reduction="none")

    objective = belief_objective(model) if method == "rsnn" else softmax_objective
    return labels, {epsilon: fgsm(objective, images, labels, epsilon) for epsilon in epsilons}


def _confidence(shop: Workshop) -> Numbers:
    """Measure the confidence of RS-NN and CNN in correct and wrong predictions of attacked images."""
    numbers: Numbers = {}
    for method in ("rsnn", "softmax"):
        labels, changed = _changed(shop, method, (0.01, 0.05))
        predictor = as_predictor(shop.model(shop.config("mnist", method)))
        for epsilon, images in changed.items():
            prediction = predictor(images)
            correct = prediction.labels == labels
            numbers.setdefault(method, {})[f"{epsilon:g}"] = {
                "accuracy": correct.double().mean().item(),
                "right": prediction.confidence[correct].tolist(),
                "wrong": prediction.confidence[~correct].tolist(),
            }
    return numbers


def _confidence_tables(numbers: Numbers) -> list[Table]:
    rows = []
    for method, levels in numbers.items():
        for epsilon, values in levels.items():
            means = [f"{mean_of(values[name]):.3f}" if values[name] else "–" for name in ("right", "wrong")]
            rows.append((METHODS[method], epsilon, f"{100 * values['accuracy']:.2f}", *means))
    columns = ("method", "ε", "accuracy, %", "confidence when correct", "confidence when wrong")
    return [Table("Confidence under FGSM on MNIST", columns, tuple(rows), "First seed.")]


def _confidence_verdict(numbers: Numbers) -> str:
    rsnn, softmax = (mean_of(numbers[method]["0.05"]["wrong"]) for method in ("rsnn", "softmax"))
    result = "confirms" if rsnn < softmax else "contradicts"
    return (
        f"In wrong predictions at ε = 0.05, the mean confidence is {rsnn:.2f} for RS-NN and {softmax:.2f} "
        f"for CNN, which {result} the paper."
    )


def _confidence_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    figure, axes = panels(1, 2, (10, 3.6))
    for ax, epsilon in zip(axes, ("0.01", "0.05"), strict=True):
        for method in numbers:
            for name, title, style in (("right", "correct", "-"), ("wrong", "wrong", "--")):
                if values := numbers[method][epsilon][name]:
                    label = f"{METHODS[method]}, {title}"
                    ax.hist(values, 30, range=(0, 1), histtype="step", linestyle=style, label=label)
        ax.set_yscale("log")  # most confidences are near 1
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
            "answer": int(predictor(images[:1]).labels[0]),
            "image": [[round(value, 3) for value in row] for row in images[0, 0].tolist()],
        }
        for epsilon, images in changed.items()
    }


def _example_tables(numbers: Numbers) -> list[Table]:
    rows = tuple((epsilon, str(row["label"]), str(row["answer"])) for epsilon, row in numbers.items())
    return [Table("An image attacked with FGSM", ("ε", "label", "RS-NN's prediction"), rows)]


def _example_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    figure, axes = panels(1, len(numbers), (2 * len(numbers), 2.4))
    for ax, (epsilon, row) in zip(axes, numbers.items(), strict=True):
        ax.imshow(row["image"], cmap="gray", vmin=0, vmax=1)
        ax.set_title(f"ε = {epsilon}: {row['answer']}")
        ax.set_axis_off()
    return {"figure": figure}


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
        title="Images attacked with FGSM",
        data=("mnist",),
        models=lambda shop: [shop.config("mnist")],
        measure=_examples,
        tables=_example_tables,
        verdict=lambda numbers: "The images illustrate the size of ε; the paper makes no claim here.",
        figures=_example_figure,
    ),
)
