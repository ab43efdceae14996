"""Compare scores for detecting errors and unknown inputs; does the credal width add to the entropy?

Uses the evaluations of `reproduction`, training and measuring what is missing, and adds random-set networks
that start from the softmax network which chose their sets ("trained-once"). The last table compares only
inputs of nearly equal entropy (40 quantile bins): how often does the wrong or unknown input have the higher
score? One half means that the score adds nothing.

Run: python -m reproduction run table-2, the same for table-1, then python -m benchmarks.scores
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from randomset.evaluation import Evaluation
from reproduction import SCALES, Workshop
from reproduction.exhibit import over_seeds
from reproduction.scales import METHODS

Floats = NDArray[np.float64]
SCORES = ("entropy", "1 - maximum", "credal width", "non-specificity")
TITLES = {**METHODS, "trained-once": "RS-NN, trained once"}


def auroc_at_equal(positive: NDArray[np.bool_], score: Floats, level: Floats, parts: int = 40) -> float:
    """Return the probability that a positive has the higher score, among pairs of nearly equal level."""
    part = np.argsort(np.argsort(level, kind="stable")) * parts // len(level)
    pairs = won = 0.0
    for number in range(parts):
        own = part == number
        count = float(positive[own].sum() * (~positive[own]).sum())
        if count:
            pairs += count
            won += count * float(roc_auc_score(positive[own], score[own]))
    return won / pairs if pairs else float("nan")


def detection_tasks(result: Evaluation) -> Iterator[tuple[str, NDArray[np.bool_], Callable[[str], Floats]]]:
    """Yield the detection tasks: name, positive samples, and a function that returns scores by name."""
    test = result.predictions["test"]
    wrong = (test.probabilities.argmax(1) != result.labels["test"]).numpy()
    yield "errors", wrong, lambda name: test.scores[name].numpy().astype(float)
    for unknown in result["ood"]:
        far = result.predictions[unknown]
        positive = np.arange(len(test) + len(far)) >= len(test)

        def both(name: str, far: object = far) -> Floats:
            return np.concatenate([one.scores[name].numpy() for one in (test, far)]).astype(float)  # type: ignore[attr-defined]

        yield unknown, positive, both


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("paper"))
    parser.add_argument("--scale", default="cpu", choices=list(SCALES))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--data", default="mnist,cifar10,intel")
    parser.add_argument("--methods", default="rsnn,trained-once,softmax,ensemble")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    shop = Workshop(SCALES[arguments.scale], arguments.folder / arguments.scale, arguments.seeds)
    plain: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    equal: dict[tuple[str, str], dict[str, list[float]]] = {}
    known: dict[tuple[str, str], list[Evaluation]] = {}
    for data in arguments.data.split(","):
        for method in arguments.methods.split(","):
            own: dict[str, Any] = {"method": method}
            if method == "trained-once":
                own = {"from_scratch": False}
            known[data, method] = shop.evaluations(data, **own)
            for result in known[data, method]:
                for name, positive, score in detection_tasks(result):
                    for kind in SCORES:
                        if kind not in result.predictions["test"].scores:
                            continue
                        value = float(roc_auc_score(positive, score(kind)))
                        plain.setdefault((data, name, method), {}).setdefault(kind, []).append(value)
                        if method == "rsnn" and kind != "entropy":
                            value = auroc_at_equal(positive, score(kind), score("entropy"))
                            equal.setdefault((data, name), {}).setdefault(kind, []).append(value)
    print("\nOn the test data")
    names = ("accuracy, %", "NLL, nats", "ECE", "NLL, one temperature", "ECE, one temperature")
    print("| data | method | " + " | ".join(names) + " |\n" + "|---" * (2 + len(names)) + "|")
    for (data, method), results in known.items():
        tests = [one["test"] for one in results]
        cells = [over_seeds([test["accuracy"] for test in tests])]
        for part in (tests, [test["scaled"] for test in tests]):
            cells += [over_seeds([one[name] for one in part], 1, 3) for name in ("nll", "ece")]
        print(f"| {data} | {TITLES[method]} | " + " | ".join(cells) + " |")
    print("\nAUROC of errors and of unknown inputs, in percent")
    print("| data | detected | method | " + " | ".join(SCORES) + " |\n" + "|---" * (3 + len(SCORES)) + "|")
    for (data, name, method), found in sorted(plain.items()):
        cells = [over_seeds(found.get(score)) for score in SCORES]
        print(f"| {data} | {name} | {TITLES[method]} | " + " | ".join(cells) + " |")
    print("\nAUROC of RS-NN among inputs of equal entropy, in percent")
    print("| data | detected | " + " | ".join(SCORES[1:]) + " |\n" + "|---" * 5 + "|")
    for (data, name), found in equal.items():
        print(f"| {data} | {name} | " + " | ".join(over_seeds(found[score]) for score in SCORES[1:]) + " |")


if __name__ == "__main__":
    main()
