"""Table 7, a vision transformer with held-out classes; Table 19, text."""

from __future__ import annotations

from collections.abc import Callable

from randomset.evaluation.tables import Table
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, moments, over_seeds
from reproduction.measures import beside, every_model, lead, quality
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

__all__ = ["EXHIBITS"]

BOTH = ("rsnn", "softmax")


def _quality(data: str) -> Callable[[Workshop], Numbers]:
    def measure(shop: Workshop) -> Numbers:
        return {method: quality(shop.evaluations(data, method)) for method in BOTH}

    return measure


def _first_unknown(numbers: Numbers) -> str:
    return next(iter(numbers["rsnn"]["unknown"]))


def _transformer_tables(numbers: Numbers) -> list[Table]:
    unknown = _first_unknown(numbers)
    known_pair = [numbers[method] for method in BOTH]
    unknown_pair = [numbers[method]["unknown"][unknown] for method in BOTH]
    rows = []
    for name, (rsnn, softmax) in (("known", known_pair), ("unknown", unknown_pair)):
        width, entropy, softmax_entropy = printed.TRANSFORMER[name]
        rows.append(
            (
                name,
                beside(moments(rsnn["width"]), width, 3),
                beside(moments(rsnn["entropy"]), entropy, 3),
                beside(moments(softmax["entropy"]), softmax_entropy, 3),
            )
        )
    columns = ("inputs", "credal width", "RS-NN entropy, bits", "CNN entropy, bits")
    quality_rows = tuple(
        (
            METHODS[method],
            over_seeds(numbers[method]["accuracy"]),
            over_seeds(numbers[method]["ece"], 1, 4),
            over_seeds(numbers[method]["unknown"][unknown]["auroc"]),
            over_seeds(numbers[method]["unknown"][unknown].get("auroc by width")),
        )
        for method in BOTH
    )
    quality_columns = ("method", "accuracy, %", "ECE", "AUROC of the entropy, %", "AUROC of the width, %")
    return [
        Table(
            "A vision transformer", columns, tuple(rows), "In parentheses, the paper's values on ImageNet."
        ),
        Table("Accuracy, calibration and detection", quality_columns, quality_rows),
    ]


def _transformer_verdict(numbers: Numbers) -> str:
    unknown = _first_unknown(numbers)
    ratios = {
        METHODS[method]: mean_of(numbers[method]["unknown"][unknown]["entropy"]["mean"])
        / mean_of(numbers[method]["entropy"]["mean"])
        for method in BOTH
    }
    result = "is confirmed" if ratios["RS-NN"] > ratios["CNN"] else "is not confirmed"
    values = " and ".join(f"{ratio:.2f} for {name}" for name, ratio in ratios.items())
    accuracy = max(mean_of(numbers[method]["accuracy"]) for method in BOTH)
    caveat = "" if accuracy > 0.6 else " Both networks are too inaccurate to recognise unknown classes."
    return (
        f"The paper's claim that RS-NN separates known and unknown classes better {result}: the entropy of "
        f"unknown inputs, relative to known ones, is {values}.{caveat}"
    )


def _text_tables(numbers: Numbers) -> list[Table]:
    rows = []
    for method in BOTH:
        accuracy, entropy, auroc, auprc, unknown_entropy = printed.TEXT[method]
        known, unknown = numbers[method], numbers[method]["unknown"][_first_unknown(numbers)]
        rows.append(
            (
                METHODS[method],
                beside(over_seeds(known["accuracy"]), accuracy),
                beside(moments(known["entropy"]), entropy, 3),
                beside(over_seeds(unknown["auroc"]), auroc),
                beside(over_seeds(unknown["auprc"]), auprc),
                beside(moments(unknown["entropy"]), unknown_entropy, 3),
                over_seeds(unknown.get("auroc by width")),
            )
        )
    columns = (
        *("method", "accuracy, %", "entropy, bits", "tweets: AUROC, %", "AUPRC, %", "entropy, bits"),
        "AUROC of the width, %",
    )
    return [Table("News and tweets", columns, tuple(rows), "The paper's values are in parentheses.")]


def _text_verdict(numbers: Numbers) -> str:
    unknown = _first_unknown(numbers)
    accuracy = {method: numbers[method]["accuracy"] for method in BOTH}
    auroc = {method: numbers[method]["unknown"][unknown]["auroc"] for method in BOTH}
    return (
        f"RS-NN's margin, in points: accuracy {lead(accuracy)}, AUROC {lead(auroc)}; in the paper, +2.70 and "
        "+38.48."
    )


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
        title="Text: news, with tweets as unknown inputs",
        data=("text",),
        models=lambda shop: every_model(shop, ("text",), BOTH),
        measure=_quality("text"),
        tables=_text_tables,
        verdict=_text_verdict,
    ),
)
