"""Tables 11 and 12, Figures 14, 15, 16 and 20: noise and rotation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from randomset.data.corruptions import gaussian_noise, rotated, rotated_between
from randomset.evaluation.predictor import Prediction, as_predictor
from randomset.evaluation.robustness import pixels_of
from randomset.evaluation.tables import Table
from randomset.report.axes import panels
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
TITLES = {"as they are": "original", "noise": "noisy", "turned": "rotated"}
CORRECT = {"right": "correct", "wrong": "wrong"}


# -- Tables 11 and 12 -----------------------------------------------------------------------------


def _levels(shop: Workshop, change: str) -> Numbers:
    numbers: Numbers = {}
    for method in SHOWN:
        seeds = [
            shop.evaluation("mnist", shop.config("mnist", method, seed), sweeps=True)[change]
            for seed in shop.seeds
        ]
        numbers[method] = [
            {
                "level": rows[0]["level"],
                **{name: [row[name] for row in rows] for name in ("accuracy", "entropy")},
            }
            for rows in zip(*seeds, strict=True)
        ]
    return numbers


def _level_tables(change: str) -> Callable[[Numbers], list[Table]]:
    paper = printed.NOISE if change == "noise" else printed.ROTATION

    def tables(numbers: Numbers) -> list[Table]:
        columns = ("method", *(_level_name(row["level"]) for row in numbers["rsnn"]))
        accuracies, entropies = [], []
        for method in SHOWN:
            published = (None, *paper[method])  # the paper has no value without corruption
            levels = list(zip(numbers[method], published, strict=True))
            accuracies.append(
                (METHODS[method], *(beside(over_seeds(row["accuracy"]), value) for row, value in levels))
            )
            entropies.append((METHODS[method], *(over_seeds(row["entropy"], 1, 3) for row, _ in levels)))
        note = "The paper's values are in parentheses."
        return [
            Table(f"Accuracy in %, {change} on MNIST", columns, tuple(accuracies), note),
            Table(f"Mean entropy in bits, {change} on MNIST", columns, tuple(entropies)),
        ]

    return tables


def _level_name(level: Any) -> str:
    if level is None:
        return "none"
    return f"{level:g}" if isinstance(level, float) else f"{level[0]:g}° to {level[1]:g}°"


def _level_verdict(numbers: Numbers) -> str:
    levels = range(1, len(numbers["rsnn"]))  # the first is without corruption
    best = [max(SHOWN, key=lambda method: mean_of(numbers[method][i]["accuracy"])) for i in levels]
    count = best.count("rsnn")
    return f"RS-NN is the most accurate at {count} of {len(best)} levels; in the paper, at most of them."


# -- Figures 14, 15 and 16: confidence and entropy on corrupted CIFAR-10 ----------------------------


def _changed(shop: Workshop, method: str) -> tuple[dict[str, Prediction], torch.Tensor]:
    """Predict original, noisy and rotated test images; return the predictions and the labels."""
    config = shop.config("cifar10", method)
    tested, _, _ = shop.data(config)
    count = min(len(tested), shop.scale.changed_samples)
    images, predictor = tested.inputs[:count], as_predictor(shop.model(config))
    pixels = pixels_of(images)
    corrupted = {
        "as they are": pixels,
        "noise": gaussian_noise(pixels, 0.1, seed=0),
        "turned": rotated_between(pixels, -60, 60, seed=0),
    }
    predictions = {}
    for kind, inputs in corrupted.items():
        if images.dtype == torch.uint8:
            inputs = (inputs * 255).round().to(torch.uint8)
        predictions[kind] = Prediction.concatenate([predictor(batch) for batch in inputs.split(256)])
    return predictions, tested.labels[:count]


def _confidences(shop: Workshop) -> Numbers:
    """Measure the mean confidence and entropy of correct and wrong predictions, by corruption."""
    numbers: Numbers = {}
    for method in ("rsnn", "softmax"):
        predictions, labels = _changed(shop, method)
        for kind, prediction in predictions.items():
            correct = prediction.labels == labels
            for name, mask in (("right", correct), ("wrong", ~correct)):
                if mask.any():
                    numbers.setdefault(method, {}).setdefault(kind, {})[name] = {
                        "share": mask.double().mean().item(),
                        "confidence": prediction.confidence[mask].double().mean().item(),
                        "entropy": prediction.scores["entropy"][mask].double().mean().item(),
                    }
    return numbers


def _confidence_tables(numbers: Numbers) -> list[Table]:
    rows = [
        (METHODS[method], TITLES[kind], CORRECT[name], f"{100 * values['share']:.1f}",
         *(f"{values[part]:.3f}" for part in ("confidence", "entropy")))
        for method, kinds in numbers.items()
        for kind, predictions in kinds.items()
        for name, values in predictions.items()
    ]  # fmt: skip
    columns = ("method", "images", "predictions", "share, %", "mean confidence", "mean entropy, bits")
    return [Table("CIFAR-10: original, noisy and rotated", columns, tuple(rows), "First seed.")]


def _confidence_verdict(numbers: Numbers) -> str:
    wrong = {
        kind: [numbers[method][kind]["wrong"]["confidence"] for method in ("rsnn", "softmax")]
        for kind in numbers["rsnn"]
        if all("wrong" in numbers[method][kind] for method in ("rsnn", "softmax"))
    }
    lower = ", ".join(TITLES[kind] for kind, (rsnn, softmax) in wrong.items() if rsnn < softmax) or "none"
    return (
        "The paper's claim that RS-NN is less confident than CNN in wrong predictions is confirmed on these "
        f"images: {lower}."
    )


def _histograms(shop: Workshop, score: str, methods: tuple[str, ...]) -> dict[str, Figure]:
    figure, axes = panels(1, 3, (12, 3.6))
    for method in methods:
        predictions, labels = _changed(shop, method)
        for ax, (kind, prediction) in zip(axes, predictions.items(), strict=True):
            values = (prediction.confidence if score == "confidence" else prediction.scores[score]).numpy()
            correct = (prediction.labels == labels).numpy()
            for name, mask, style in (("correct", correct, "-"), ("wrong", ~correct, "--")):
                if mask.any() and (name == "wrong" or len(methods) == 1):
                    label = name if len(methods) == 1 else f"{METHODS[method]}, {name}"
                    ax.hist(values[mask], 30, density=True, histtype="step", linestyle=style, label=label)
            ax.set_title(TITLES[kind])
            ax.set_xlabel(score)
    axes[0].set_ylabel("density")
    axes[0].legend()
    return {"figure": figure}


# -- Figure 20: a rotated digit ---------------------------------------------------------------------


def _rotated_three(shop: Workshop) -> Numbers:
    """Measure entropy and predictions for a "3" that both networks know, rotated by several angles."""
    pixels = known_digit(shop, 3)
    images = torch.cat([rotated(pixels, float(angle)) for angle in ANGLES])
    numbers: Numbers = {"angles": list(ANGLES), "methods": {}}
    for method in SHOWN:
        models = [shop.model(shop.config("mnist", method, seed)) for seed in shop.seeds]
        predictions = [as_predictor(model)(images) for model in models]
        entropies = [prediction.scores["entropy"].numpy() for prediction in predictions]
        numbers["methods"][method] = {
            "entropy": np.mean(entropies, 0).tolist(),
            "answers": predictions[0].labels.tolist(),
        }
    return numbers


def _rotated_tables(numbers: Numbers) -> list[Table]:
    shown = [i for i, angle in enumerate(numbers["angles"]) if angle % 30 == 0]
    rows = tuple(
        (METHODS[method], *(f"{values['entropy'][i]:.3f} ({values['answers'][i]})" for i in shown))
        for method, values in numbers["methods"].items()
    )
    columns = ("method", *(f"{numbers['angles'][i]}°" for i in shown))
    note = "Entropy in bits, mean over seeds; in parentheses, the prediction of the first seed."
    return [Table("A rotated 3", columns, rows, note)]


def _rotated_verdict(numbers: Numbers) -> str:
    angles = np.array(numbers["angles"])
    entropy = np.array(numbers["methods"]["rsnn"]["entropy"])
    inner, outer = entropy[abs(angles) <= 30].mean(), entropy[abs(angles) > 30].mean()
    result = "confirms" if outer > inner else "contradicts"
    return f"RS-NN's entropy is {inner:.2f} bits up to 30° and {outer:.2f} beyond, which {result} the paper."


def _rotated_figure(shop: Workshop, numbers: Numbers) -> dict[str, Figure]:
    figure, (ax,) = panels(1, 1, (7, 4))
    for method, values in numbers["methods"].items():
        ax.plot(numbers["angles"], values["entropy"], marker="o", markersize=3, label=METHODS[method])
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
    _of_confidence("figure-14", "Confidence of wrong predictions", "confidence", ("rsnn", "softmax")),
    _of_confidence("figure-15", "Confidence on corrupted images", "confidence", ("rsnn",)),
    _of_confidence("figure-16", "Entropy on corrupted images", "entropy", ("rsnn",)),
    Exhibit(
        id="figure-20",
        title="Entropy of a rotated 3",
        data=("mnist",),
        models=lambda shop: every_model(shop, ("mnist",), SHOWN),
        measure=_rotated_three,
        tables=_rotated_tables,
        verdict=_rotated_verdict,
        figures=_rotated_figure,
    ),
)
