"""Table 4: other architectures, plain and as random-set networks."""

from __future__ import annotations

from typing import Any

from randomset.evaluation.tables import Table
from randomset.training.config import TrainConfig
from reproduction import printed, small_data
from reproduction.exhibit import Exhibit, Numbers, mean_of, over_seeds
from reproduction.measures import beside
from reproduction.workshop import Workshop

__all__ = ["EXHIBITS"]

BOTH = ("rsnn", "softmax")


def _architectures(shop: Workshop) -> dict[str, dict[str, Any]]:
    """The paper's at full scale, smaller ones of the same kinds elsewhere; each with the options of a run."""
    if shop.scale.name == "full":
        own: dict[str, Any] = {"hidden": ()}
        return {
            "ResNet-50, pretrained": {"backbone": "torchvision:resnet50", "weights": "default"},
            "WideResNet-28-10": {**own, "backbone": "wide_resnet"},
            "VGG16": {**own, "backbone": "torchvision:vgg16"},
            "Inception V3": {**own, "backbone": "torchvision:inception_v3"},
            "EfficientNet-B2": {**own, "backbone": "torchvision:efficientnet_b2"},
            "ViT-B/16": {**own, "backbone": "torchvision:vit_b_16"},
        }
    folder = shop.folder / "data"
    if shop.scale.name == "tiny":
        transformer = small_data.transformer(folder, (1, 8, 8), layers=1, width=16, patch=4)
        return {"small CNN": {}, "ViT, 1 layer": {"backbone": transformer}}
    transformer = small_data.transformer(folder, (3, 32, 32), layers=3, width=64, patch=4)
    return {
        "small CNN": {},
        "ResNet-18, 8 wide, 4 epochs": {"backbone": "resnet18", "width": 8, "epochs": 4},
        "ViT, 3 layers of 64": {"backbone": transformer},
    }


def _models(shop: Workshop) -> list[TrainConfig]:
    return [
        shop.config("cifar10", method, seed, **_fitting(method, options))
        for options in _architectures(shop).values()
        for method in BOTH
        for seed in shop.seeds
    ]


def _fitting(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only a random-set network has."""
    return (
        options if method == "rsnn" else {name: value for name, value in options.items() if name != "hidden"}
    )


def _measure(shop: Workshop) -> Numbers:
    numbers: Numbers = {}
    for name, options in _architectures(shop).items():
        numbers[name] = {}
        for method in BOTH:
            changes = _fitting(method, options)
            results = shop.evaluations("cifar10", method, **changes)
            model = shop.model(shop.config("cifar10", method, **changes))
            numbers[name][method] = {
                "accuracy": [one["test"]["accuracy"] for one in results],
                "parameters": sum(p.numel() for p in model.parameters()),
            }
    return numbers


def _tables(numbers: Numbers) -> list[Table]:
    rows = []
    for name, both in numbers.items():
        theirs = printed.ARCHITECTURES.get(name, (None,) * 4)
        cells = [beside(over_seeds(both[method]["accuracy"]), theirs[i]) for i, method in enumerate(BOTH)]
        cells += [
            beside(f"{both[method]['parameters'] / 1e6:.3f}", theirs[i + 2]) for i, method in enumerate(BOTH)
        ]
        rows.append((name, *cells))
    columns = ("network", "RS-NN's accuracy, %", "CNN's, %", "RS-NN's parameters, M", "CNN's, M")
    note = (
        "In brackets the paper's, where the network is the paper's; some of its parameters cannot be right."
    )
    return [Table("Architectures on CIFAR-10", columns, tuple(rows), note)]


def _verdict(numbers: Numbers) -> str:
    ahead = [
        name
        for name, both in numbers.items()
        if mean_of(both["rsnn"]["accuracy"]) > mean_of(both["softmax"]["accuracy"])
    ]
    said = ", ".join(ahead) if ahead else "none"
    return (
        f"RS-NN is more accurate on {len(ahead)} of {len(numbers)} networks ({said}), in the paper on 5 of 6."
    )


EXHIBITS = (
    Exhibit(
        id="table-4",
        title="Other architectures",
        data=("cifar10",),
        models=_models,
        measure=_measure,
        tables=_tables,
        verdict=_verdict,
    ),
)
