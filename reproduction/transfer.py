"""Table 7, a vision transformer with unknown classes, and Table 19, texts."""

from __future__ import annotations

from typing import Any

from randomset.evaluation.tables import Table
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, moments, over_seeds
from reproduction.measures import beside, every_model, lead, quality
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

__all__ = ["EXHIBITS"]

BOTH = ("rsnn", "softmax")


def _quality(data: str) -> Any:
    def measure(shop: Workshop) -> Numbers:
        return {method: quality(shop.evaluations(data, method)) for method in BOTH}

    return measure


def _first_unknown(numbers: Numbers) -> str:
    return next(iter(numbers["rsnn"]["unknown"]))


def _transformer_tables(numbers: Numbers) -> list[Table]:
    unknown = _first_unknown(numbers)
    ours, plain = numbers["rsnn"], numbers["softmax"]
    rows = []
    for name, mine, theirs in (
        ("known", ours, plain),
        ("unknown", ours["unknown"][unknown], plain["unknown"][unknown]),
    ):
        width, entropy, other = printed.TRANSFORMER[name]
        rows.append(
            (
                name,
                beside(moments(mine["width"]), width, 3),
                beside(moments(mine["entropy"]), entropy, 3),
                beside(moments(theirs["entropy"]), other, 3),
            )
        )
    columns = ("inputs", "credal width", "RS-NN's entropy, bits", "CNN's entropy, bits")
    second = tuple(
        (
            METHODS[method],
            over_seeds(numbers[method]["accuracy"]),
            over_seeds(numbers[method]["ece"], 1, 4),
            over_seeds(numbers[method]["unknown"][unknown]["auroc"]),
            over_seeds(numbers[method]["unknown"][unknown].get("auroc by width")),
        )
        for method in BOTH
    )
    quality_columns = ("method", "accuracy, %", "ECE", "AUROC by entropy, %", "AUROC by width, %")
    return [
        Table("A vision transformer", columns, tuple(rows), "In brackets the paper's, on ImageNet."),
        Table("The same networks", quality_columns, second),
    ]


def _transformer_verdict(numbers: Numbers) -> str:
    unknown = _first_unknown(numbers)
    ratios = {
        METHODS[method]: mean_of(numbers[method]["unknown"][unknown]["entropy"]["mean"])
        / mean_of(numbers[method]["entropy"]["mean"])
        for method in BOTH
    }
    said = " and ".join(f"{ratio:.2f} for {name}" for name, ratio in ratios.items())
    held = "held" if ratios["RS-NN"] > ratios["CNN"] else "did not hold"
    accuracy = max(mean_of(numbers[method]["accuracy"]) for method in BOTH)
    weak = "" if accuracy > 0.6 else " At this accuracy neither knows enough to notice what it does not know."
    times = f"unknown inputs have {said} times the entropy."
    return f"The paper's clearer distinction by RS-NN {held}: {times}{weak}"


def _text_tables(numbers: Numbers) -> list[Table]:
    rows = []
    for method in BOTH:
        accuracy, entropy, auroc, auprc, far = printed.TEXT[method]
        ours = numbers[method]
        found = ours["unknown"][_first_unknown(numbers)]
        rows.append(
            (
                METHODS[method],
                beside(over_seeds(ours["accuracy"]), accuracy),
                beside(moments(ours["entropy"]), entropy, 3),
                beside(over_seeds(found["auroc"]), auroc),
                beside(over_seeds(found["auprc"]), auprc),
                beside(moments(found["entropy"]), far, 3),
                over_seeds(found.get("auroc by width")),
            )
        )
    columns = (
        *("method", "accuracy, %", "entropy, bits", "tweets: AUROC, %", "AUPRC, %", "entropy, bits"),
        "AUROC by width, %",
    )
    return [Table("News and tweets", columns, tuple(rows), "In brackets the paper's.")]


def _text_verdict(numbers: Numbers) -> str:
    unknown = _first_unknown(numbers)
    accuracy = {method: numbers[method]["accuracy"] for method in BOTH}
    auroc = {method: numbers[method]["unknown"][unknown]["auroc"] for method in BOTH}
    return f"RS-NN's accuracy is {lead(accuracy)}, its AUROC {lead(auroc)}; the paper has +2.70 and +38.48."


EXHIBITS = (
    Exhibit(
        id="table-7",
        title="A vision transformer on known and unknown classes",
        data=("imagenet-vit",),
        models=lambda shop: every_model(shop, ("imagenet-vit",), BOTH),
        measure=_quality("imagenet-vit"),
        tables=_transformer_tables,
        verdict=_transformer_verdict,
    ),
    Exhibit(
        id="table-19",
        title="Texts: news, and tweets as unknown inputs",
        data=("text",),
        models=lambda shop: every_model(shop, ("text",), BOTH),
        measure=_quality("text"),
        tables=_text_tables,
        verdict=_text_verdict,
    ),
)
