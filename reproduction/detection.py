"""Tables 2, 3 and 8, telling unknown inputs: all methods, the credal width, and classes near by."""

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
    """The data sets that a scale has."""
    return tuple(data for data in DATA if data in shop.scale.settings)


def _detection(shop: Workshop) -> Numbers:
    return {
        data: {method: quality(shop.evaluations(data, method)) for method in METHODS} for data in _data(shop)
    }


def _detection_tables(numbers: Numbers) -> list[Table]:
    tables = []
    for data in numbers:
        unknown = DATA[data]
        rows = []
        for method, title in METHODS.items():
            ours = numbers[data][method]
            entropy, ece, theirs = printed.DETECTION[data][method]
            cells = [
                beside(moments(ours["entropy"]), entropy, 3),
                beside(over_seeds(ours["ece"], 1, 4), ece, 4),
                over_seeds(ours.get("scaled ece"), 1, 4),
            ]
            for name in unknown:
                auroc, auprc, far = theirs[name]
                found = ours["unknown"][name]
                cells += [
                    beside(over_seeds(found["auroc"]), auroc),
                    beside(over_seeds(found["auprc"]), auprc),
                    beside(moments(found["entropy"]), far, 3),
                ]
            rows.append((title, *cells))
        head = ["method", "entropy, bits", "ECE", "ECE, one temperature"]
        for name in unknown:
            head += [f"{name}: AUROC, %", "AUPRC, %", "entropy, bits"]
        note = "In brackets the paper's. AUROC and AUPRC by entropy; ± of entropies is over samples."
        tables.append(Table(f"Unknown inputs beside {data}", tuple(head), tuple(rows), note))
    return tables


def _detection_verdict(numbers: Numbers) -> str:
    said, won, cases = [], 0, 0
    for data in numbers:
        unknown = DATA[data]
        for name in unknown:
            for part in ("auroc", "auprc"):
                values = {method: numbers[data][method]["unknown"][name][part] for method in METHODS}
                cases += 1
                won += max(METHODS, key=lambda method: mean_of(values[method])) == "rsnn"
                if part == "auroc":
                    said.append(f"{name} {lead(values)}")
    return (
        f"RS-NN has the highest AUROC or AUPRC in {won} of {cases} cases, in the paper in all; points of "
        f"AUROC with the best of the others: {'; '.join(said)}."
    )


def _widths(shop: Workshop) -> Numbers:
    return {data: quality(shop.evaluations(data)) for data in _data(shop)}


def _width_tables(numbers: Numbers) -> list[Table]:
    rows = []
    for data in numbers:
        unknown = DATA[data]
        known, far = printed.WIDTH[data]
        rows.append((data, beside(moments(numbers[data]["width"]), known, 3), "–", "–"))
        for name in unknown:
            found = numbers[data]["unknown"][name]
            cells = over_seeds(found["auroc by width"]), over_seeds(found["auroc"])
            rows.append((f"{data} → {name}", beside(moments(found["width"]), far[name], 3), *cells))
    columns = ("data", "credal width", "AUROC by width, %", "AUROC by entropy, %")
    return [Table("Width of the credal set", columns, tuple(rows), "In brackets the paper's mean.")]


def _width_verdict(numbers: Numbers) -> str:
    wider = [
        mean_of(numbers[data]["unknown"][name]["width"]["mean"]) > mean_of(numbers[data]["width"]["mean"])
        for data in numbers
        for name in DATA[data]
    ]
    better = [
        mean_of(numbers[data]["unknown"][name]["auroc by width"])
        > mean_of(numbers[data]["unknown"][name]["auroc"])
        for data in numbers
        for name in DATA[data]
    ]
    return (
        f"Unknown inputs have the wider sets in {sum(wider)} of {len(wider)} cases, as the paper says; the "
        f"width tells them better than the entropy in {sum(better)} of {len(better)}."
    )


def _near_tables(numbers: Numbers) -> list[Table]:
    theirs, rows = printed.NEAR, []
    for method in ("rsnn", "softmax"):
        ours, far = numbers[method], numbers[method]["unknown"]["cifar100"]
        paper = method == "rsnn"
        rows.append(
            (
                METHODS[method],
                beside(moments(ours["entropy"]), theirs["entropy"] if paper else None, 3),
                beside(moments(ours["width"]), theirs["width"], 3) if paper else "–",
                beside(over_seeds(far["auroc"]), theirs["auroc"] if paper else None),
                beside(over_seeds(far["auprc"]), theirs["auprc"] if paper else None),
                beside(moments(far["entropy"]), theirs["far entropy"] if paper else None, 3),
                beside(moments(far["width"]), theirs["far width"], 3) if paper else "–",
            )
        )
    columns = ("method", "entropy, bits", "width", "AUROC, %", "AUPRC, %", "entropy there", "width there")
    note = "In brackets the paper's, which has no other method here."
    return [Table("CIFAR-10 and CIFAR-100", columns, tuple(rows), note)]


def _near_verdict(numbers: Numbers) -> str:
    values = {method: numbers[method]["unknown"]["cifar100"]["auroc"] for method in ("rsnn", "softmax")}
    return f"RS-NN's AUROC between CIFAR-10 and CIFAR-100, in points: {lead(values)}; the paper has no other."


def _near(shop: Workshop) -> Numbers:
    return {method: quality(shop.evaluations("cifar10", method)) for method in ("rsnn", "softmax")}


EXHIBITS = (
    Exhibit(
        id="table-2",
        title="Telling unknown inputs: AUROC, AUPRC, entropy, ECE",
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
        title="CIFAR-10 and CIFAR-100",
        data=("cifar10",),
        models=lambda shop: every_model(shop, ("cifar10",), ("rsnn", "softmax")),
        measure=_near,
        tables=_near_tables,
        verdict=_near_verdict,
    ),
)
