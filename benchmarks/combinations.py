"""Mean or Dempster's rule for the members of a random-set ensemble, by the validation data of its runs.

Each run's validation samples are split in two: the temperature of the combination is fitted to one half and
the figures are measured on the other, and then the other way round. "Errors" is the AUROC in per cent with
which the entropy detects wrong predictions.

Run: randomset train SOURCE --members 5 --out RUN, then python -m benchmarks.combinations RUN …
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import randomset as rs
from randomset.evaluation.metrics import detection
from randomset.models.random_set_ensemble import Combination
from randomset.models.temperature import measured

COMBINATIONS: tuple[Combination, ...] = "mean", "dempster"


def figures(answer: rs.RandomSet, labels: Tensor) -> list[float]:
    """Return accuracy in per cent, NLL, ECE, and the AUROC of detecting errors by entropy in per cent."""
    target = torch.nn.functional.one_hot(labels, answer.budget.num_classes).double()
    nll, ece, accuracy = measured(answer.pignistic.double(), target)
    right = answer.labels == labels
    auroc = 1.0 if right.all() else detection(answer.entropy[right], answer.entropy[~right]).auroc
    return [100 * accuracy, nll, ece, 100 * auroc]


def rows_of(run: Path) -> dict[str, list[float]]:
    """Return the figures of every combination, with and without a temperature, averaged over two halves."""
    held: Any = rs.Run(run).data().validation
    model: Any = rs.Run(run).model
    halves = [torch.arange(len(held)) % 2 == half for half in (0, 1)]
    rows: dict[str, list[list[float]]] = {}
    for combination in COMBINATIONS:
        ensemble = rs.RandomSetEnsemble(list(model.members), combination).eval()
        ensemble.notes = model.notes
        for seen, unseen in (halves, halves[::-1]):
            inputs, labels = held.inputs[unseen], held.labels[unseen]
            ensemble.calibration = None
            rows.setdefault(combination, []).append(figures(ensemble.predict(inputs), labels))
            ensemble.calibrate((held.inputs[seen], held.labels[seen]), progress=False)
            name = f"{combination}, one temperature"
            rows.setdefault(name, []).append(figures(ensemble.predict(inputs), labels))
    return {name: [fmean(column) for column in zip(*each, strict=True)] for name, each in rows.items()}


def main() -> None:
    """Print the table, averaged over the runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="run folders of random-set ensembles")
    each = [rows_of(run) for run in parser.parse_args().runs]
    print("| combination | accuracy, % | NLL, nats | ECE | errors: AUROC, % |\n|---|---|---|---|---|")
    for name in each[0]:
        values = [fmean(column) for column in zip(*(rows[name] for rows in each), strict=True)]
        print(
            "| "
            + " | ".join([name, *(f"{v:.{d}f}" for v, d in zip(values, (2, 4, 4, 1), strict=True))])
            + " |"
        )


if __name__ == "__main__":
    main()
