"""Ablations of the random-set network, one change to its recipe at a time, judged on validation data.

A fifth of the classes (different ones for each seed) is left out of training and serves as unknown data; test
data and other data sets are not used, so that settings can be chosen here. The softmax baseline has the same
backbone, rows, epochs and seed; its features choose the sets.

Run: python -m benchmarks.variants --source cifar10 --out variants
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from randomset import Budget, Budgeter, RandomSetLoss, RandomSetNetwork
from randomset._core.files import save_tensors
from randomset.backbones.inputs import Standardise, convert_images
from randomset.belief.random_set import RandomSet
from randomset.budgeting import from_confusion
from randomset.budgeting.features import extract_features
from randomset.data import Source, load_source
from randomset.evaluation import evaluate
from randomset.models import Softmax
from randomset.training.config import TrainConfig
from randomset.training.fitting import fit
from randomset.training.preparation import backbone_for
from randomset.training.recipe import Recipe

SCORES = ("entropy", "1 - maximum", "credal width", "non-specificity")


class WithCrossEntropy(RandomSetLoss):
    """The paper's loss plus the cross-entropy of the pignistic probability, times a weight."""

    def __init__(self, budget: Budget, weight: float) -> None:
        super().__init__(budget)
        self.cross_entropy = weight

    def forward(self, logits: Any, labels: Any, weight: Tensor | None = None) -> Tensor:
        """Return the sum of both."""
        betp = RandomSet.from_logits(logits, self.operators).pignistic
        sure = betp.gather(1, labels[:, None]).clamp_min(1e-6).log().mean()
        return super().forward(logits, labels, weight) - self.cross_entropy * sure


def torch_initialisation(network: RandomSetNetwork) -> None:
    """Initialise the head like a linear layer of torch."""
    layer = network.head.layers[-1]
    assert isinstance(layer, nn.Linear)
    layer.reset_parameters()


def all_pairs(budget: Budget) -> Budget:
    """Use every pair instead of the sets with the largest overlap."""
    return Budget.from_sets(itertools.combinations(budget.classes, 2), budget.classes)


def random_sets(budget: Budget) -> Budget:
    """Use as many random pairs and triples."""
    every = [list(itertools.combinations(range(budget.num_classes), size)) for size in (2, 3)]
    sets = every[0] + every[1]
    chosen = torch.randperm(len(sets), generator=torch.Generator().manual_seed(0))
    count = len(budget) - budget.num_classes
    return Budget.from_sets([sets[i] for i in chosen[:count].tolist()], budget.classes)


def faster_head(factor: float) -> dict[str, float]:
    """Multiply the learning rate of the head; ten times is the recipe "fast-head"."""
    return {"learning_rate": factor * Recipe().learning_rate, "backbone_share": 1 / factor}


Change = dict[str, Any]
VARIANTS: dict[str, Change] = {
    "softmax": {},
    "default": {},
    "K = 0": {"budget": lambda budget: Budget.singletons(budget.classes)},
    "all pairs": {"budget": all_pairs},
    "random sets": {"budget": random_sets},
    "α = β = 0": {"loss": lambda budget: RandomSetLoss(budget, 0.0, 0.0)},
    "α = β = 0.01": {"loss": lambda budget: RandomSetLoss(budget, 0.01, 0.01)},
    "α = β = 0.1": {"loss": lambda budget: RandomSetLoss(budget, 0.1, 0.1)},
    "torch's head": {"head": torch_initialisation},
    "head × 3": {"recipe": faster_head(3)},
    "head × 10": {"recipe": faster_head(10)},
    "+ 0.1 cross-entropy": {"loss": lambda budget: WithCrossEntropy(budget, 0.1)},
    "+ 1 cross-entropy": {"loss": lambda budget: WithCrossEntropy(budget, 1.0)},
    "learning rate × 3": {"recipe": {"learning_rate": 9e-3}},
    "learning rate ÷ 3": {"recipe": {"learning_rate": 1e-3}},
    "confusion sets": {"confused": True},
    "head × 10, + 1 cross-entropy": {
        "recipe": faster_head(10),
        "loss": lambda budget: WithCrossEntropy(budget, 1.0),
    },
    "head × 10, K = 0": {
        "recipe": faster_head(10),
        "budget": lambda budget: Budget.singletons(budget.classes),
    },
    "softmax, head × 10": {"recipe": faster_head(10), "plain": True},
    "softmax, 3 × epochs": {"longer": 3, "plain": True},
    "3 × epochs": {"longer": 3},
    "head × 10, 3 × epochs": {"recipe": faster_head(10), "longer": 3},
    "from first": {"from_first": True},
    "from first, head × 10": {"from_first": True, "recipe": faster_head(10)},
    "softmax, 2 × epochs": {"longer": 2, "plain": True},
}


class Setting:
    """Data, split and configuration of one seed."""

    def __init__(self, arguments: argparse.Namespace, data: Source, seed: int) -> None:
        self.arguments, self.seed = arguments, seed
        n = len(data.classes)
        count = n // 5
        left_out = torch.arange(count * seed, count * (seed + 1)) % n
        unknown = torch.isin(data.labels, left_out)
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
        known = order[~unknown[order]]
        held, calibrating = arguments.held, arguments.held // 2
        self.inputs = data.inputs
        kept = [label for label in range(n) if label not in left_out.tolist()]
        place = torch.full((n,), -1)
        place[kept] = torch.arange(len(kept))
        self.labels = place[data.labels]
        self.classes = tuple(data.classes[label] for label in kept)
        self.measured, self.calibrating = known[:held], known[held : held + calibrating]
        self.rows = known[held + calibrating :][: arguments.samples]
        self.unknown = order[unknown[order]][:held]
        self.config = TrainConfig(
            source=arguments.source, backbone=arguments.backbone, width=arguments.width,
            epochs=arguments.epochs, seed=seed,
        )  # fmt: skip

    def train(self, model: nn.Module, loss: nn.Module, change: Change) -> nn.Module:
        """Train on the training rows, and calibrate if possible."""
        plan = dataclasses.replace(self.config.plan(len(self.rows)), **change.get("recipe", {}))
        fit(
            model,
            self._part(self.rows),
            self._part(self.calibrating),
            recipe=dataclasses.replace(plan, epochs=change.get("longer", 1) * plan.epochs),
            loss=loss,
            seed=self.seed,
            reliability="none",
        )
        return model.eval()

    def _part(self, rows: Tensor) -> torch.utils.data.Dataset[Any]:
        return torch.utils.data.TensorDataset(self.inputs[rows], self.labels[rows])

    def parts(self) -> tuple[nn.Module, nn.Module]:
        """Return a backbone and its preprocessing, the same for every variant."""
        torch.manual_seed(self.seed)
        backbone = backbone_for(self.config.backbone, self.inputs, self.config.width)
        return backbone, Standardise.from_data(self.inputs, self.rows)

    def numbers(self, model: Any) -> dict[str, float]:
        """Evaluate on rows used for neither training nor calibration."""
        known = Source(
            "known", "images", self.inputs[self.measured], self.labels[self.measured], self.classes
        )
        found = evaluate(model, known, {"unknown": self.inputs[self.unknown]}, seed=self.seed).numbers
        scores = found["ood"]["unknown"]["scores"]
        return {
            **{key: found["test"][key] for key in ("accuracy", "nll", "ece")},
            **{score: scores[score]["auroc"] for score in SCORES if score in scores},
        }


def choose_sets(setting: Setting, model: Any, features_of: nn.Module, folder: Path) -> None:
    """Choose sets by overlap in the softmax features, and by the confusions of the softmax network."""
    classes = list(setting.classes)
    batches = torch.utils.data.DataLoader(setting._part(setting.rows), 256)
    features, codes = extract_features(features_of, batches, progress=False)
    scale = features.std(0)
    budgeter = Budgeter(20, classes=classes, seed=setting.seed, progress=False)
    budgeter.fit(features[:, scale > 0] / scale[scale > 0], codes)
    budgeter.budget_.save(folder / f"{setting.seed}-budget.json")
    held = setting.calibrating
    probabilities, _ = model.predict(setting.inputs[held])
    confusion = torch.stack(
        [probabilities[setting.labels[held] == label].mean(0) for label in range(len(classes))]
    )
    from_confusion(confusion.numpy(), 20, classes).save(folder / f"{setting.seed}-confused.json")


def run(setting: Setting, name: str, change: Change, folder: Path) -> dict[str, float]:
    """Train and measure one variant with one seed, unless its result is stored."""
    place = folder / f"{setting.seed}-{list(VARIANTS).index(name)}.json"
    if place.exists():
        return json.loads(place.read_text(encoding="utf-8"))["numbers"]
    backbone, preprocess = setting.parts()
    model: nn.Module
    if name == "softmax" or "plain" in change:
        model = Softmax(backbone, len(setting.classes), preprocess=preprocess)
        setting.train(model, nn.CrossEntropyLoss(), change)
    else:
        kind = "confused" if "confused" in change else "budget"
        budget = Budget.load(folder / f"{setting.seed}-{kind}.json")
        budget = change.get("budget", lambda same: same)(budget)
        if "from_first" in change:  # the softmax network whose features chose the sets
            backbone.load_state_dict(load_file(_softmax_weights(setting, folder)))
        network = RandomSetNetwork(backbone, budget, preprocess=preprocess)
        change.get("head", lambda same: None)(network)
        loss: Callable[[Budget], nn.Module] = change.get("loss", RandomSetLoss)
        model = setting.train(network, loss(budget), change)
    if name == "softmax":
        save_tensors(backbone.state_dict(), _softmax_weights(setting, folder))
        choose_sets(setting, model, nn.Sequential(preprocess, backbone).eval(), folder)
    numbers = setting.numbers(model)
    place.write_text(json.dumps({"variant": name, "numbers": numbers}) + "\n", encoding="utf-8")
    return numbers


def _softmax_weights(setting: Setting, folder: Path) -> Path:
    return folder / f"{setting.seed}-twin.safetensors"


def main() -> None:
    """Train missing variants and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default="cifar10", help="a data set of images")
    parser.add_argument("--backbone", default="small_cnn")
    parser.add_argument("--width", type=int)
    parser.add_argument("--size", type=int, help="resize images to this size")
    parser.add_argument("--samples", type=int, default=20_000, help="training images")
    parser.add_argument(
        "--held", type=int, default=4_000, help="images to evaluate on; half as many calibrate"
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", default=";".join(VARIANTS), help="names separated by semicolons")
    parser.add_argument("--out", type=Path, default=Path("variants"), help="folder for results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = arguments.variants.split(";")
    data = load_source(arguments.source)
    if arguments.size is not None:
        shape = (data.inputs.shape[1], arguments.size, arguments.size)
        data = dataclasses.replace(data, inputs=convert_images(data.inputs, shape)[0])
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for seed in range(arguments.seeds):
        setting = Setting(arguments, data, seed)
        for name in names:
            results[name].append(run(setting, name, VARIANTS[name], arguments.out))
            print(seed, name, {k: round(v, 4) for k, v in results[name][-1].items()}, flush=True)
    _show(results, None)
    if "default" in results:
        print("\nDifferences to the default, seed by seed:")
        _show(results, results["default"])


def _show(results: dict[str, list[dict[str, float]]], base: list[dict[str, float]] | None) -> None:
    """Print means and standard deviations over seeds, of the numbers or of their differences to a base."""
    columns = ("accuracy", "nll", "ece", *SCORES)
    print("| variant | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name, rows in results.items():
        cells = []
        for column in columns:
            less = [0.0] * len(rows) if base is None else [row[column] for row in base]
            values = [row[column] - own for row, own in zip(rows, less, strict=True) if column in row]
            share, digits = (1, 3) if column in ("nll", "ece") else (100, 1)
            sign = "" if base is None else "+"
            spread = f" ± {share * statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{share * statistics.mean(values):{sign}.{digits}f}{spread}" if values else "–")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
