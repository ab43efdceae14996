"""Table 4: other architectures, as softmax and as random-set networks."""

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
    """Return the options of each network: the paper's at full scale, smaller ones of the same kind else."""
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


def _options(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Drop `hidden` for methods other than RS-NN, whose heads have no hidden layers."""
    return {name: value for name, value in options.items() if method == "rsnn" or name != "hidden"}


def _models(shop: Workshop) -> list[TrainConfig]:
    return [
        shop.config("cifar10", method, seed, **_options(method, options))
        for options in _architectures(shop).values()
        for method in BOTH
        for seed in shop.seeds
    ]


def _measure(shop: Workshop) -> Numbers:
    numbers: Numbers = {}
    for name, architecture in _architectures(shop).items():
        numbers[name] = {}
        for method in BOTH:
            options = _options(method, architecture)
            model = shop.model(shop.config("cifar10", method, **options))
            numbers[name][method] = {
                "accuracy": [
                    result["test"]["accuracy"] for result in shop.evaluations("cifar10", method, **options)
                ],
                "parameters": sum(p.numel() for p in model.parameters()),
            }
    return numbers


def _tables(numbers: Numbers) -> list[Table]:
    rows = []
    for name, both in numbers.items():
        paper = printed.ARCHITECTURES.get(name, (None,) * 4)
        cells = [over_seeds(both[method]["accuracy"]) for method in BOTH]
        cells += [f"{both[method]['parameters'] / 1e6:.3f}" for method in BOTH]
        rows.append((name, *(beside(cell, value) for cell, value in zip(cells, paper, strict=True))))
    columns = ("network", "RS-NN accuracy, %", "CNN accuracy, %", "RS-NN parameters, M", "CNN parameters, M")
    note = (
        "In parentheses, the paper's values for the same network; some of its parameter counts are "
        "implausible."
    )
    return [Table("Architectures on CIFAR-10", columns, tuple(rows), note)]


def _verdict(numbers: Numbers) -> str:
    better = [
        name
        for name, both in numbers.items()
        if mean_of(both["rsnn"]["accuracy"]) > mean_of(both["softmax"]["accuracy"])
    ]
    names = ", ".join(better) if better else "none"
    return (
        f"RS-NN is more accurate than CNN with {len(better)} of {len(numbers)} networks ({names}); in the "
        "paper, with 5 of 6."
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
