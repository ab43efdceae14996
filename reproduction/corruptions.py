"""Tables 11 and 12 and Figures 14, 15, 16 and 20: noise and rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from randomset.data.corruptions import gaussian_noise, rotated, rotated_between
from randomset.evaluation.predictor import Prediction, as_predictor
from randomset.evaluation.sweeps import pixels_of
from randomset.evaluation.tables import Table
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, over_seeds
from reproduction.measures import beside, every_model, known_digit
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXHIBITS"]

SHOWN = ("softmax", "rsnn", "laplace-bridge", "epinet")
ANGLES = tuple(range(-90, 91, 10))


# -- Tables 11 and 12 -----------------------------------------------------------------------------


def _levels(shop: Workshop, change: str) -> Numbers:
    found: Numbers = {}
    for method in SHOWN:
        rows = [
            shop.evaluation("mnist", shop.config("mnist", method, seed), sweeps=True)[change]
            for seed in shop.seeds
        ]
        found[method] = [
            {
                "level": each[0]["level"],
                **{name: [row[name] for row in each] for name in ("accuracy", "entropy")},
            }
            for each in zip(*rows, strict=True)
        ]
    return found


def _level_tables(change: str) -> Any:
    theirs = printed.NOISE if change == "noise" else printed.ROTATION

    def tables(numbers: Numbers) -> list[Table]:
        levels = [_named(row["level"]) for row in numbers["rsnn"]]
        found = []
        for name, title in (("accuracy", "Accuracy, %"), ("entropy", "Mean entropy, bits")):
            rows = []
            for method in SHOWN:
                cells = []
                for place, row in enumerate(numbers[method]):
                    paper = theirs[method][place - 1] if place and name == "accuracy" else None
                    scale, digits = (100, 2) if name == "accuracy" else (1, 3)
                    cells.append(beside(over_seeds(row[name], scale, digits), paper))
                rows.append((METHODS[method], *cells))
            found.append(
                Table(
                    f"{title}, {change} on MNIST",
                    ("method", *levels),
                    tuple(rows),
                    "In brackets the paper's.",
                )
            )
        return found

    return tables


def _named(level: Any) -> str:
    if level is None:
        return "none"
    return f"{level:g}" if isinstance(level, float) else f"{level[0]:g}° to {level[1]:g}°"


def _level_verdict(numbers: Numbers) -> str:
    ahead = []
    for place in range(1, len(numbers["rsnn"])):
        best = max(SHOWN, key=lambda method: mean_of(numbers[method][place]["accuracy"]))
        ahead.append(best)
    count = ahead.count("rsnn")
    return f"RS-NN is the most accurate at {count} of {len(ahead)} levels; in the paper at most of them."


# -- Figures 14, 15 and 16: confidence and entropy of changed CIFAR-10 -------------------------------


def _changed(shop: Workshop, method: str) -> tuple[dict[str, Prediction], torch.Tensor]:
    """Predict test images as they are, with noise, and turned."""
    config = shop.config("cifar10", method)
    tested, _, _ = shop.data(config)
    count = min(len(tested), shop.scale.changed_samples)
    images, predictor = tested.inputs[:count], as_predictor(shop.model(config))
    pixels = pixels_of(images)
    kinds = {
        "as they are": pixels,
        "noise": gaussian_noise(pixels, 0.1, seed=0),
        "turned": rotated_between(pixels, -60, 60, seed=0),
    }
    found = {}
    for name, each in kinds.items():
        if images.dtype == torch.uint8:
            each = (each * 255).round().to(torch.uint8)
        found[name] = Prediction.concatenate([predictor(part) for part in each.split(256)])
    return found, tested.labels[:count]


def _confidences(shop: Workshop) -> Numbers:
    """Mean confidence and entropy of right and wrong answers, by kind of image."""
    numbers: Numbers = {}
    for method in ("rsnn", "softmax"):
        predictions, labels = _changed(shop, method)
        for kind, one in predictions.items():
            right = one.labels == labels
            for name, which in (("right", right), ("wrong", ~right)):
                if which.any():
                    numbers.setdefault(method, {}).setdefault(kind, {})[name] = {
                        "share": which.double().mean().item(),
                        "confidence": one.confidence[which].double().mean().item(),
                        "entropy": one.scores["entropy"][which].double().mean().item(),
                    }
    return numbers


def _confidence_tables(numbers: Numbers) -> list[Table]:
    rows = [
        (METHODS[method], kind, name, f"{100 * found['share']:.1f}",
         *(f"{found[part]:.3f}" for part in ("confidence", "entropy")))
        for method, kinds in numbers.items()
        for kind, answers in kinds.items()
        for name, found in answers.items()
    ]  # fmt: skip
    columns = ("method", "images", "answers", "share, %", "mean confidence", "mean entropy, bits")
    return [Table("CIFAR-10 as it is, with noise, and turned", columns, tuple(rows), "First seed.")]


def _confidence_verdict(numbers: Numbers) -> str:
    lower = [
        kind
        for kind in numbers["rsnn"]
        if "wrong" in numbers["rsnn"][kind] and "wrong" in numbers["softmax"][kind]
        and numbers["rsnn"][kind]["wrong"]["confidence"] < numbers["softmax"][kind]["wrong"]["confidence"]
    ]  # fmt: skip
    said = ", ".join(lower) if lower else "none of them"
    return f"RS-NN is less confident than CNN where it is wrong, as the paper says, on these images: {said}."


def _histograms(shop: Workshop, score: str, methods: tuple[str, ...]) -> dict[str, Figure]:
    from randomset.report.axes import panels

    kinds = ("as they are", "noise", "turned")
    figure, axes = panels(1, 3, (12, 3.6))
    for method in methods:
        predictions, labels = _changed(shop, method)
        for ax, kind in zip(axes, kinds, strict=True):
            one = predictions[kind]
            values = (one.confidence if score == "confidence" else one.scores[score]).numpy()
            right = (one.labels == labels).numpy()
            for name, which, style in (("right", right, "-"), ("wrong", ~right, "--")):
                if which.any() and (name == "wrong" or len(methods) == 1):
                    label = name if len(methods) == 1 else f"{METHODS[method]}, {name}"
                    ax.hist(values[which], 30, density=True, histtype="step", linestyle=style, label=label)
            ax.set_title(kind)
            ax.set_xlabel(score)
    axes[0].set_ylabel("density")
    axes[0].legend()
    return {"figure": figure}


# -- Figure 20: one digit, turned -------------------------------------------------------------------


def _turned_three(shop: Workshop) -> Numbers:
    """Entropy and answers of the first "3" that both networks know, turned by every angle."""
    pixels = known_digit(shop, 3)
    turned = torch.cat([rotated(pixels, float(angle)) for angle in ANGLES])
    numbers: Numbers = {"angles": list(ANGLES), "methods": {}}
    for method in SHOWN:
        found = [as_predictor(shop.model(shop.config("mnist", method, seed)))(turned) for seed in shop.seeds]
        numbers["methods"][method] = {
            "entropy": np.mean([one.scores["entropy"].numpy() for one in found], 0).tolist(),
            "answers": found[0].labels.tolist(),
        }
    return numbers


def _turned_tables(numbers: Numbers) -> list[Table]:
    shown = [place for place, angle in enumerate(numbers["angles"]) if angle % 30 == 0]
    rows = tuple(
        (METHODS[m], *(f"{found['entropy'][p]:.3f} ({found['answers'][p]})" for p in shown))
        for m, found in numbers["methods"].items()
    )
    columns = ("method", *(f"{numbers['angles'][place]}°" for place in shown))
    return [
        Table(
            "A turned 3",
            columns,
            rows,
            "Entropy in bits, mean over seeds; in brackets the first seed's answer.",
        )
    ]


def _turned_verdict(numbers: Numbers) -> str:
    angles = np.array(numbers["angles"])
    entropy = np.array(numbers["methods"]["rsnn"]["entropy"])
    inner, outer = entropy[abs(angles) <= 30].mean(), entropy[abs(angles) > 30].mean()
    held = "as the paper says" if outer > inner else "against what the paper says"
    return f"RS-NN's entropy is {inner:.2f} bits up to 30° and {outer:.2f} beyond, {held}."


def _turned_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    from randomset.report.axes import panels

    figure, (ax,) = panels(1, 1, (7, 4))
    for method, found in numbers["methods"].items():
        ax.plot(numbers["angles"], found["entropy"], marker="o", markersize=3, label=METHODS[method])
    ax.set_xlabel("angle, degrees")
    ax.set_ylabel("entropy, bits")
    ax.legend()
    return {"figure": figure}


def _of_levels(id: str, change: str) -> Exhibit:
    return Exhibit(
        id=id,
        title=f"Accuracy under {change}",
        data=("mnist",),
        models=lambda shop: every_model(shop, ("mnist",), SHOWN),
        measure=lambda shop: _levels(shop, change),
        tables=_level_tables(change),
        verdict=_level_verdict,
    )


def _of_confidence(id: str, title: str, score: str, methods: tuple[str, ...]) -> Exhibit:
    return Exhibit(
        id=id,
        title=title,
        data=("cifar10",),
        models=lambda shop: [shop.config("cifar10", method) for method in ("rsnn", "softmax")],
        measure=_confidences,
        tables=_confidence_tables,
        verdict=_confidence_verdict,
        figures=lambda shop, numbers: _histograms(shop, score, methods),
    )


EXHIBITS = (
    _of_levels("table-11", "noise"),
    _of_levels("table-12", "rotation"),
    _of_confidence("figure-14", "Confidence of wrong answers", "confidence", ("rsnn", "softmax")),
    _of_confidence("figure-15", "Confidence on changed images", "confidence", ("rsnn",)),
    _of_confidence("figure-16", "Entropy on changed images", "entropy", ("rsnn",)),
    Exhibit(
        id="figure-20",
        title="Entropy of a turned 3",
        data=("mnist",),
        models=lambda shop: every_model(shop, ("mnist",), SHOWN),
        measure=_turned_three,
        tables=_turned_tables,
        verdict=_turned_verdict,
        figures=_turned_figure,
    ),
)
