"""CIFAR-10 with `fast_cnn` and the recipe "speed": random-set networks beside six other methods.

For every seed, five softmax and five random-set networks are trained on 45,000 images; 5,000 are for
validation. The first of each are the single networks, all five the ensembles. Laplace bridge, FSVI and epinet
are trained once per seed. Every classifier has one temperature that is fitted to the validation images (the
random-set network its own calibration), since NLL and ECE would otherwise compare label smoothing.

Networks and raw scores are stored in FOLDER, metrics in RESULTS, one file for each method and seed. What is
there is not computed again, and an interrupted training continues from its last epoch. `--only` chooses what
to do, so that a run can be spread over several sittings; without a run, `--table` prints the tables.

Run: RANDOMSET_DATA=DATA python -m benchmarks.cifar10 FOLDER [--seeds 0 1 2] [--only softmax rsnn …]
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from randomset import RandomSetEnsemble
from randomset.belief.budget import Budget
from randomset.data import load_source
from randomset.evaluation.metrics import (
    calibration_error,
    detection,
    fitted_temperature,
    negative_log_likelihood,
    tempered,
)
from randomset.models import Classifier, Ensemble, load
from randomset.models.prediction import Prediction
from randomset.training import TrainConfig, train
from randomset.training.preparation import chosen_precision

RESULTS = Path("docs/results/cifar10")
MEMBERS = 5
HELD = 5000
OVERLAPPING = ("English springer", "garbage truck")  # dogs and trucks among the Imagenette classes

# method: its name in the tables, and its scores with their names there
METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "softmax": ("CNN (softmax)", {"entropy": "entropy", "energy": "energy"}),
    "laplace-bridge": ("LB-BNN", {"entropy": "entropy", "mutual information": "mutual information"}),
    "fsvi": ("FSVI", {"entropy": "entropy", "mutual information": "mutual information"}),
    "epinet": ("ENN", {"entropy": "entropy", "mutual information": "mutual information"}),
    "ensemble": ("ensemble of 5", {"entropy": "entropy", "mutual information": "mutual information"}),
    "rsnn-plain": ("RS-NN, no reliability", {"entropy": "entropy", "credal width": "width"}),
    "rsnn": (
        "RS-NN",
        {"entropy": "entropy", "credal width": "width", "1 - reliability": "1 − r"},
    ),
    "random-set-ensemble": (
        "random-set ensemble of 5",
        {
            **{"entropy": "entropy", "credal width": "width", "1 - reliability": "1 − r"},
            "mutual information": "mutual information",
        },
    ),
}
UNKNOWN = {
    "svhn": "SVHN",
    "cifar100": "CIFAR-100",
    "intel": "Intel",
    "imagenette": "Imagenette",
    "noise": "noise",
}

# -- data -----------------------------------------------------------------------------------------


def unknown_images() -> dict[str, Tensor]:
    """Return images of 32 × 32 pixels, as bytes, that are not of the ten classes."""
    found = {}
    for name in ("svhn", "cifar100", "intel", "imagenette"):
        data = load_source(name, "val" if name == "imagenette" else "test", size=(32, 32))
        images = data.inputs
        if name == "imagenette":
            out = [place for place, label in enumerate(data.classes) if label in OVERLAPPING]
            images = images[~torch.isin(data.labels, torch.tensor(out))]
        if images.shape[-1] != 32:
            scaled = torch.nn.functional.interpolate(
                images.float(), size=(32, 32), mode="bilinear", antialias=True
            )
            images = scaled.round().clamp(0, 255).byte()
        found[name] = images
    generator = torch.Generator().manual_seed(0)
    found["noise"] = torch.randint(0, 256, (2000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return found


class Data:
    """CIFAR-10, with the split of a seed, and the unknown images."""

    def __init__(self, seed: int) -> None:
        self.source, self.test = load_source("cifar10", "train"), load_source("cifar10", "test")
        order = torch.randperm(len(self.source.inputs), generator=torch.Generator().manual_seed(seed))
        self.val_rows, self.rows = order[:HELD].sort().values, order[HELD:].sort().values

    def parts(self) -> dict[str, Tensor]:
        """Return validation, test and unknown images."""
        return {"val": self.source.inputs[self.val_rows], "test": self.test.inputs, **unknown_images()}

    def labels(self, part: str) -> Tensor:
        """Return the labels of the validation or test images."""
        return self.source.labels[self.val_rows] if part == "val" else self.test.labels


# -- networks -------------------------------------------------------------------------------------


def trained(
    folder: Path,
    data: Data,
    method: str,
    seed: int,
    options: argparse.Namespace,
    budget: Budget | None = None,
    base: Classifier | None = None,
) -> Classifier:
    """Return a network from its folder; train it if it is not there."""
    finished = folder / "seconds.json"
    if finished.exists():
        return load(folder / "model")
    config = TrainConfig(
        method=method,
        source="cifar10",
        backbone="fast_cnn",
        recipe="speed",
        mirror=True,
        width=options.width,
        epochs=options.epochs,
        seed=seed,
    )
    begun, started = folder.exists(), time.perf_counter()
    result = train(
        config,
        data.source.inputs,
        data.source.labels,
        data.source.classes,
        rows=data.rows,
        val_rows=data.val_rows,
        budget=budget,
        base=base,
        out=folder,
        resume=begun,
        progress=False,
    )
    result.model.save(folder / "model")
    seconds = time.perf_counter() - started
    finished.write_text(json.dumps({"seconds": seconds, "resumed": begun}))
    print(f"{folder.name}: {seconds:.0f} s{', after an interruption' if begun else ''}", flush=True)
    return result.model


def network(method: str, seed: int, data: Data, options: argparse.Namespace) -> tuple[Classifier, float]:
    """Return the classifier of a method and the seconds of its training."""
    folder: Path = options.folder

    def member(kind: str, number: int = 0, **more: Any) -> tuple[Classifier, float]:
        place = folder / f"{kind}-{seed}-{number}"
        model = trained(place, data, kind, 100 * seed + number, options, **more)
        return model, json.loads((place / "seconds.json").read_text())["seconds"]

    if method in ("ensemble", "random-set-ensemble"):
        kind = "softmax" if method == "ensemble" else "rsnn"
        first = member(kind)
        budget = getattr(first[0], "budget", None)
        found = [first, *(member(kind, number, budget=budget) for number in range(1, MEMBERS))]
        members = [model for model, _ in found]
        seconds = sum(seconds for _, seconds in found)
        if method == "ensemble":
            return Ensemble(members), seconds
        several = RandomSetEnsemble(members)
        several.calibrate((data.source.inputs[data.val_rows], data.labels("val")))
        return several, seconds
    if method == "laplace-bridge":
        base, before = member("softmax")
        model, seconds = member(method, base=base)
        return model, before + seconds
    return member("rsnn" if method == "rsnn-plain" else method)


# -- metrics --------------------------------------------------------------------------------------


@torch.inference_mode()
def predicted(method: str, model: Classifier, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return probabilities and scores."""
    options: dict[str, Any] = {"discounted": False} if method == "rsnn-plain" else {}
    answer = Prediction.of(model.predict(images, batch_size=500, progress=False, **options))
    scores = dict(answer.scores)
    if method == "softmax":
        logits = torch.cat([model(batch.float() / 255) for batch in images.split(500)])
        scores["energy"] = -logits.logsumexp(1)
    return answer.probabilities, scores


def measured(method: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train what is missing, and return the metrics of a method and seed."""
    data = Data(seed)
    model, seconds = network(method, seed, data, options)
    model.eval()
    found = {part: predicted(method, model, images) for part, images in data.parts().items()}
    temperature = 1.0
    if not method.startswith(("rsnn", "random-set")):
        temperature = fitted_temperature(found["val"][0], data.labels("val"))
    p, labels = tempered(found["test"][0], temperature), data.labels("test")
    raw = options.folder / f"scores-{method}-{seed}.npz"
    arrays: dict[str, Any] = {"probabilities": found["test"][0].numpy(), "labels": labels.numpy()}
    for part, (_, scores) in found.items():
        arrays |= {f"{part}/{name}": values.numpy() for name, values in scores.items()}
    np.savez_compressed(raw, **arrays)
    known = found["test"][1]
    return {
        "method": method,
        "seed": seed,
        "width": options.width,
        "epochs": options.epochs,
        "torch": torch.__version__,
        "precision": chosen_precision(None, "cpu"),
        "seconds": seconds,
        "accuracy": 100 * float((p.argmax(1) == labels).double().mean()),
        "nll": negative_log_likelihood(p, labels),
        "ece": calibration_error(p, labels),
        "temperature": temperature,
        "unknown": {
            part: {
                score: _detection(known[score], scores[score])
                for score in METHODS[method][1]
                if score in known
            }
            for part, (_, scores) in found.items()
            if part in UNKNOWN
        },
    }


def _detection(known: Tensor, unknown: Tensor) -> dict[str, float]:
    found = detection(known, unknown)
    return {"auroc": 100 * found.auroc, "auprc": 100 * found.auprc, "fpr95": 100 * found.fpr95}


# -- tables ---------------------------------------------------------------------------------------


def tables(results: Path) -> str:
    """Return the tables of all stored metrics."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(results.glob("*.json")):
        row = json.loads(path.read_text())
        found.setdefault(row["method"], []).append(row)
    lines = [
        "| method | seeds | accuracy, % | NLL, nats | ECE | minutes |",
        "|---|---|---|---|---|---|",
    ]
    order = [method for method in METHODS if method in found]
    for method in order:
        rows = found[method]
        cells = [_spread(rows, key, digits) for key, digits in (("accuracy", 2), ("nll", 4), ("ece", 4))]
        minutes = f"{statistics.mean(row['seconds'] for row in rows) / 60:.1f}"
        lines.append(f"| {METHODS[method][0]} | {len(rows)} | {' | '.join(cells)} | {minutes} |")
    for metric, title in (("auroc", "AUROC, %"), ("auprc", "AUPRC, %"), ("fpr95", "FPR95, %")):
        lines += ["", f"| {title} | score | {' | '.join(UNKNOWN.values())} | mean |"]
        lines.append("|---" * (len(UNKNOWN) + 3) + "|")
        for method in order:
            for score, name in METHODS[method][1].items():
                rows = found[method]
                if score not in rows[0]["unknown"]["svhn"]:
                    continue
                values = [[row["unknown"][part][score][metric] for row in rows] for part in UNKNOWN]
                cells = [_mean(column, 1) for column in values]
                mean = statistics.mean(statistics.mean(column) for column in values)
                lines.append(f"| {METHODS[method][0]} | {name} | {' | '.join(cells)} | {mean:.1f} |")
    return "\n".join(lines)


def _spread(rows: Iterable[dict[str, Any]], key: str, digits: int) -> str:
    return _mean([row[key] for row in rows], digits)


def _mean(values: list[float], digits: int) -> str:
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--table", action="store_true", help="print the tables of what is stored")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options.results.mkdir(parents=True, exist_ok=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    for seed in [] if options.table else options.seeds:
        for method in options.only:
            path = options.results / f"{method}-{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(measured(method, seed, options), indent=1) + "\n")
    print(tables(options.results))


if __name__ == "__main__":
    main()
