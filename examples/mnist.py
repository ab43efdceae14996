"""A random-set and a softmax network on MNIST, with Fashion-MNIST and Kuzushiji-MNIST as unknown data.

Trains both on the paper's split for several seeds, with the same backbone, data, epochs and recipe. As in the
paper, the softmax network chooses the sets, and the random-set network is trained from scratch, without a
reliability. Evaluates both with `randomset.evaluation.evaluate`: accuracy, calibration, unknown inputs,
noise, rotation, attacks. Finished steps are stored in the output folder, so that an interrupted run can be
resumed.
The last step writes the tables as Markdown. Needs the three data sets: `randomset data --download mnist`, and
the same for fashion-mnist and kmnist.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from randomset import backbones
from randomset.data import Source, load_source
from randomset.data.splits import Parts, usual_shares
from randomset.evaluation import Evaluation, evaluate, random_set_predictor
from randomset.evaluation.robustness import EPSILONS, NOISE, ROTATION, attack_rows
from randomset.models.random_set import RandomSetNetwork
from randomset.training import TrainConfig, train

UNKNOWN = ("fashion-mnist", "kmnist")
LEVELS = (*EPSILONS, 0.1, 0.2)
MODELS = ("softmax", "softmax, scaled", "random-set, raw", "random-set")


class Scaled(nn.Module):
    """A softmax model whose logits are divided by a temperature."""

    def __init__(self, model: nn.Module, temperature: float) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature

    @classmethod
    def fitted(cls, model: nn.Module, inputs: Tensor, labels: Tensor) -> Scaled:
        """Fit the temperature by maximum likelihood on validation data."""
        with torch.no_grad():
            logits = torch.cat([model(part) for part in inputs.split(256)]).double()

        def loss(log_t: float) -> float:
            return nn.functional.cross_entropy(logits / np.exp(log_t), labels).item()

        return cls(model, float(np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits."""
        return self.model(inputs) / self.temperature


def trained(seed: int, epochs: int, out: Path) -> tuple[RandomSetNetwork, nn.Module, Source, Parts]:
    """Train both networks of a seed, or load them if they exist."""
    data = load_source("mnist")
    parts = Parts.of(data, "mnist", **usual_shares("mnist"), seed=seed)
    if (out / "plain.safetensors").exists():
        network = RandomSetNetwork.load(out)
        assert isinstance(network.backbone, backbones.Backbone)
        assert network.preprocess is not None
        backbone = backbones.build(network.backbone.spec["name"], **network.backbone.spec["options"])
        plain = nn.Sequential(
            copy.deepcopy(network.preprocess), backbone, nn.Linear(backbone.num_features, 10)
        )
        plain.load_state_dict(load_file(out / "plain.safetensors"))
        return network, plain.eval(), data, parts
    config = TrainConfig(
        source="mnist",
        backbone="small_cnn",
        num_sets=20,
        epochs=epochs,
        seed=seed,
        from_scratch=True,
        reliability="none",
    )
    result = train(
        config,
        data.inputs,
        data.labels,
        data.classes,
        rows=parts.train,
        val_rows=parts.validation,
    )
    assert result.plain is not None
    result.model.save(out)
    state = {name: tensor.contiguous() for name, tensor in result.plain.state_dict().items()}
    save_file(state, out / "plain.safetensors")
    return result.model, result.plain, data, parts


def measured(seed: int, out: Path, epochs: int, samples: int) -> None:
    """Train and evaluate both models of one seed."""
    start = time.perf_counter()
    network, plain, data, parts = trained(seed, epochs, out)
    test = load_source("mnist", "test")
    held, calibrating = data.part(parts.validation), data.part(parts.calibration)
    pixels = held.inputs.float() / 255
    models: dict[str, Any] = {
        "softmax": plain,
        "softmax, scaled": Scaled.fitted(plain, pixels, held.labels),
        "random-set, raw": random_set_predictor(network, calibrated=False),
        "random-set": network,
    }
    seconds = {"training": time.perf_counter() - start}
    for name, model in models.items():
        whole = name in ("softmax", "random-set")
        result = evaluate(
            model,
            test,
            {other: other for other in UNKNOWN},
            validation=held,
            calibration=calibrating,
            noise=NOISE if whole else (),
            rotation=ROTATION if whole else (),
            samples=len(test),
            seed=seed,
        )
        if whole:
            some = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))[:samples]
            result.numbers["attacks"] = attack_rows(
                model,
                test.inputs[some],
                test.labels[some],
                LEVELS,
                surrogate=plain if name == "random-set" else None,
                steps=20,
                restarts=2,
                seed=seed,
            )
        result.save(out / name.replace(", ", "-"))
        print(f"seed {seed}, {name}: {result!r}")
    seconds["all"] = time.perf_counter() - start
    (out / "finished.json").write_text(json.dumps(seconds) + "\n")


def autoattacked(out: Path, epsilon: float, samples: int) -> None:
    """Run AutoAttack on both models of seed 0."""
    network, plain, _, _ = trained(0, 0, out / "seed-0")
    test = load_source("mnist", "test")
    some = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:samples]
    for name, model in (("softmax", plain), ("random-set", network)):
        place = out / f"autoattack-{name}-{epsilon:g}.json"
        if not place.exists():
            start = time.perf_counter()
            rows = attack_rows(
                model, test.inputs[some], test.labels[some], (), auto=(epsilon,), batch_size=500
            )
            rows.append({"seconds": time.perf_counter() - start, "samples": samples})
            place.write_text(json.dumps(rows, ensure_ascii=False) + "\n", encoding="utf-8")


def spread(values: list[float], scale: float = 1.0, digits: int = 2) -> str:
    """Format mean ± standard deviation over seeds."""
    found = scale * np.array(values)
    deviation = found.std(ddof=1) if len(found) > 1 else float("nan")
    return f"{found.mean():.{digits}f} ± {deviation:.{digits}f}"


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def page(out: Path) -> str:
    """Return the tables of all finished seeds."""
    seeds = sorted(path.parent for path in out.glob("seed-*/finished.json"))
    results = {m: [Evaluation.load(seed / m.replace(", ", "-")) for seed in seeds] for m in MODELS}
    texts = [f"{len(seeds)} seeds; mean ± standard deviation over seeds."]
    rows = [
        [
            m,
            spread([r["test"]["accuracy"] for r in found], 100),
            spread([r["test"]["nll"] for r in found], 1, 4),
            spread([r["test"]["ece"] for r in found], 1, 4),
            spread([r["test"]["scores"]["entropy"]["mean"] for r in found], 1, 3),
        ]
        for m, found in results.items()
    ]
    texts.append(table(["model", "accuracy, %", "NLL, nats", "ECE", "entropy, bits"], rows))
    for other in UNKNOWN:
        rows = []
        for m in ("softmax", "random-set"):
            for score in results[m][0]["ood"][other]["scores"]:
                each = [r["ood"][other]["scores"][score] for r in results[m]]
                rows.append(
                    [
                        m,
                        score,
                        *(spread([e[key] for e in each], 100) for key in ("auroc", "auprc", "fpr95")),
                        spread([e["known"]["mean"] for e in each], 1, 3),
                        spread([e["unknown"]["mean"] for e in each], 1, 3),
                    ]
                )
        columns = ["model", "score", "AUROC, %", "AUPRC, %", "FPR95, %", "known, mean", "unknown, mean"]
        texts.append(f"Unknown data: {other}.\n\n" + table(columns, rows))
    rows = []
    for m in ("softmax", "random-set"):
        each = [r["threshold"] for r in results[m]]
        cells = [spread([e["kept"] for e in each], 100)]
        cells += [spread([e["detected"][other] for e in each], 100) for other in UNKNOWN]
        rows.append([m, *cells])
    columns = ["model", "test inputs accepted, %", *(f"{other} rejected, %" for other in UNKNOWN)]
    texts.append(
        "Threshold on the entropy that accepts 95 % of the validation data.\n\n" + table(columns, rows)
    )
    for kind in ("noise", "rotation"):
        rows = []
        for m in ("softmax", "random-set"):
            for what, scale, digits in (("accuracy", 100, 2), ("entropy", 1, 3), ("credal width", 1, 3)):
                if what in results[m][0][kind][0]:
                    per = zip(*([row[what] for row in r[kind]] for r in results[m]), strict=True)
                    rows.append([m, what, *(spread(list(values), scale, digits) for values in per)])
        levels = [
            "none" if row["level"] is None else str(row["level"]) for row in results["softmax"][0][kind]
        ]
        texts.append(f"{kind.capitalize()}.\n\n" + table(["model", "measure", *levels], rows))
    rows = []
    for m in ("softmax", "random-set"):
        names = dict.fromkeys(row["attack"] for row in results[m][0]["attacks"] if row["attack"] != "none")
        clean = [next(row["accuracy"] for row in r["attacks"] if row["attack"] == "none") for r in results[m]]
        for name in names:
            by: dict[float, list[float]] = {e: [] for e in LEVELS}
            for r in results[m]:
                for row in r["attacks"]:
                    if row["attack"] == name:
                        by[row["epsilon"]].append(row["accuracy"])
            rows.append([m, name, spread(clean, 100, 1), *(spread(by[e], 100, 1) for e in LEVELS)])
    texts.append("Attacks.\n\n" + table(["model", "attack", "ε = 0", *(f"{e:g}" for e in LEVELS)], rows))
    for path in sorted(out.glob("autoattack-*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        clean, attacked = found[0]["accuracy"], found[1]["accuracy"]
        samples, epsilon = found[-1]["samples"], found[1]["epsilon"]
        model = path.stem.split("-", 1)[1].rsplit("-", 1)[0]
        texts.append(
            f"AutoAttack, ε = {epsilon:g}, {samples} images, seed 0, {model}: {clean:.1%} → {attacked:.1%}."
        )
    hours = sum(json.loads((seed / "finished.json").read_text())["all"] for seed in seeds) / 3600
    texts.append(f"Total time: {hours:.1f} hours.")
    return "\n\n".join(texts) + "\n"


def main() -> None:
    """Run the missing steps, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--samples", type=int, default=500, help="number of attacked images")
    parser.add_argument(
        "--autoattack", type=float, nargs="*", default=[], help="run AutoAttack with these ε on seed 0"
    )
    parser.add_argument("--out", type=Path, default=Path("results/mnist"))
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    for seed in range(arguments.seeds):
        out = arguments.out / f"seed-{seed}"
        out.mkdir(parents=True, exist_ok=True)
        if not (out / "finished.json").exists():
            measured(seed, out, arguments.epochs, arguments.samples)
    for epsilon in arguments.autoattack:
        autoattacked(arguments.out, epsilon, arguments.samples)
    (arguments.out / "mnist.md").write_text(page(arguments.out), encoding="utf-8")
    print(f"Wrote {arguments.out / 'mnist.md'}.")


if __name__ == "__main__":
    main()
