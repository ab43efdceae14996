"""Tables 2, 3 and 8, out-of-distribution detection: all methods, the credal width, similar classes."""

from __future__ import annotations

from randomset.evaluation.tables import Table
from reproduction import printed
from reproduction.exhibit import Exhibit, Numbers, mean_of, moments, over_seeds
from reproduction.measures import beside, every_model, lead, quality
from reproduction.scales import METHODS
from reproduction.workshop import Workshop

__all__ = ["EXHIBITS"]

DATA = {"cifar10": ("svhn", "intel"), "mnist": ("fashion-mnist", "kmnist"), "imagenet": ("imagenet-o",)}


def _data(shop: Workshop) -> tuple[str, ...]:
    """Return the data sets available at a scale."""
    return tuple(data for data in DATA if data in shop.scale.settings)


def _detection(shop: Workshop) -> Numbers:
    return {
        data: {method: quality(shop.evaluations(data, method)) for method in METHODS} for data in _data(shop)
    }


def _detection_tables(numbers: Numbers) -> list[Table]:
    tables = []
    for data in numbers:
        rows = []
        for method, title in METHODS.items():
            model = numbers[data][method]
            entropy, ece, paper = printed.DETECTION[data][method]
            cells = [
                beside(moments(model["entropy"]), entropy, 3),
                beside(over_seeds(model["ece"], 1, 4), ece, 4),
                over_seeds(model.get("scaled ece"), 1, 4),
            ]
            for name in DATA[data]:
                auroc, auprc, entropy = paper[name]
                unknown = model["unknown"][name]
                cells += [
                    beside(over_seeds(unknown["auroc"]), auroc),
                    beside(over_seeds(unknown["auprc"]), auprc),
                    beside(moments(unknown["entropy"]), entropy, 3),
                ]
            rows.append((title, *cells))
        columns = ["method", "entropy, bits", "ECE", "ECE, temperature-scaled"]
        for name in DATA[data]:
            columns += [f"{name}: AUROC, %", "AUPRC, %", "entropy, bits"]
        note = (
            "The paper's values are in parentheses. AUROC and AUPRC of the entropy; for entropies, ± is the "
            "standard deviation over samples."
        )
        tables.append(Table(f"Out-of-distribution detection, {data}", tuple(columns), tuple(rows), note))
    return tables


def _detection_verdict(numbers: Numbers) -> str:
    leads, won = [], []
    for data in numbers:
        for name in DATA[data]:
            for part in ("auroc", "auprc"):
                values = {method: numbers[data][method]["unknown"][name][part] for method in METHODS}
                won.append(max(METHODS, key=lambda method: mean_of(values[method])) == "rsnn")
                if part == "auroc":
                    leads.append(f"{name} {lead(values)}")
    return (
        f"RS-NN has the highest AUROC or AUPRC in {sum(won)} of {len(won)} cases; in the paper, in all. "
        f"Difference in AUROC to the best other method, in points: {'; '.join(leads)}."
    )


def _widths(shop: Workshop) -> Numbers:
    return {data: quality(shop.evaluations(data)) for data in _data(shop)}


def _width_tables(numbers: Numbers) -> list[Table]:
    rows = []
    for data in numbers:
        known, unknown = printed.WIDTH[data]
        rows.append((data, beside(moments(numbers[data]["width"]), known, 3), "–", "–"))
        for name in DATA[data]:
            model = numbers[data]["unknown"][name]
            cells = over_seeds(model["auroc by width"]), over_seeds(model["auroc"])
            rows.append((f"{data} → {name}", beside(moments(model["width"]), unknown[name], 3), *cells))
    columns = ("data", "credal width", "AUROC of the width, %", "AUROC of the entropy, %")
    return [Table("Credal width", columns, tuple(rows), "The paper's means are in parentheses.")]


def _width_verdict(numbers: Numbers) -> str:
    cases = [(numbers[data], numbers[data]["unknown"][name]) for data in numbers for name in DATA[data]]
    wider = [mean_of(unknown["width"]["mean"]) > mean_of(known["width"]["mean"]) for known, unknown in cases]
    better = [mean_of(unknown["auroc by width"]) > mean_of(unknown["auroc"]) for _, unknown in cases]
    return (
        f"Unknown inputs have the larger credal width in {sum(wider)} of {len(wider)} cases; in the paper, "
        f"in all. The width detects them better than the entropy in {sum(better)} of {len(better)}."
    )


def _near_tables(numbers: Numbers) -> list[Table]:
    rows = []
    for method in ("rsnn", "softmax"):
        known, unknown = numbers[method], numbers[method]["unknown"]["cifar100"]
        paper: dict[str, float] = printed.NEAR if method == "rsnn" else {}
        rows.append(
            (
                METHODS[method],
                beside(moments(known["entropy"]), paper.get("entropy"), 3),
                beside(moments(known["width"]), paper["width"], 3) if paper else "–",
                beside(over_seeds(unknown["auroc"]), paper.get("auroc")),
                beside(over_seeds(unknown["auprc"]), paper.get("auprc")),
                beside(moments(unknown["entropy"]), paper.get("far entropy"), 3),
                beside(moments(unknown["width"]), paper["far width"], 3) if paper else "–",
            )
        )
    columns = (
        *("method", "entropy, bits", "credal width", "AUROC, %", "AUPRC, %"),
        *("CIFAR-100: entropy, bits", "CIFAR-100: credal width"),
    )
    note = "The paper's values, for RS-NN only, are in parentheses."
    return [Table("CIFAR-10 against CIFAR-100", columns, tuple(rows), note)]


def _near_verdict(numbers: Numbers) -> str:
    values = {method: numbers[method]["unknown"]["cifar100"]["auroc"] for method in ("rsnn", "softmax")}
    return f"RS-NN's margin in AUROC, in points: {lead(values)}; the paper shows RS-NN only."


def _near(shop: Workshop) -> Numbers:
    return {method: quality(shop.evaluations("cifar10", method)) for method in ("rsnn", "softmax")}


EXHIBITS = (
    Exhibit(
        id="table-2",
        title="Out-of-distribution detection: AUROC, AUPRC, entropy, ECE",
        data=("cifar10", "mnist"),
        models=lambda shop: every_model(shop, _data(shop)),
        measure=_detection,
        tables=_detection_tables,
        verdict=_detection_verdict,
    ),
    Exhibit(
        id="table-3",
        title="Credal width on known and unknown inputs",
        data=("cifar10", "mnist"),
        models=lambda shop: every_model(shop, _data(shop), ("rsnn",)),
        measure=_widths,
        tables=_width_tables,
        verdict=_width_verdict,
    ),
    Exhibit(
        id="table-8",
        title="CIFAR-10 against CIFAR-100",
        data=("cifar10",),
        models=lambda shop: every_model(shop, ("cifar10",), ("rsnn", "softmax")),
        measure=_near,
        tables=_near_tables,
        verdict=_near_verdict,
    ),
)
