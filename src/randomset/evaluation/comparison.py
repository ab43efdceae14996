"""Comparison of methods: means and standard deviations over seeds, and significant leads."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from randomset._core.files import expanded, write_text
from randomset.errors import RandomSetError

__all__ = ["Column", "Comparison"]


@dataclass(frozen=True)
class Column:
    """One metric: its name, its values per method and seed, and whether higher is better (None: neither).

    `unknown` names the out-of-distribution data set that the metric refers to, if any; `cost` marks metrics
    of cost, such as time.
    """

    measure: str
    values: Mapping[str, Sequence[float]]
    better: bool | None = None
    scale: float = 1.0
    digits: int = 2
    unknown: str | None = None
    cost: bool = False

    @property
    def name(self) -> str:
        """Name of the metric, prefixed by the out-of-distribution data set."""
        return self.measure if self.unknown is None else f"{self.unknown}: {self.measure}"

    def mean(self, method: str) -> float:
        """Return the mean over seeds; NaN if there are no values."""
        return float(np.mean(self.values.get(method) or [math.nan]))

    def spread(self, method: str) -> float:
        """Return the standard deviation over seeds; NaN for fewer than two."""
        values = self.values.get(method) or []
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan

    def best(self) -> str | None:
        """Return the method that leads every other method by more than both standard deviations, or None.

        >>> Column("accuracy", {"a": [0.90, 0.91], "b": [0.80, 0.81]}, better=True).best()
        'a'
        >>> Column("accuracy", {"a": [0.90, 0.80], "b": [0.80, 0.81]}, better=True).best()
        """
        measured = [method for method in self.values if not math.isnan(self.mean(method))]
        if self.better is None or len(measured) < 2:
            return None
        first, *others = sorted(measured, key=self.mean, reverse=self.better)
        for other in others:
            lead = abs(self.mean(first) - self.mean(other))
            spreads = (self.spread(first), self.spread(other))
            if any(math.isnan(spread) for spread in spreads) or lead <= max(spreads):
                return None
        return first

    def cell(self, method: str) -> str:
        """Return "mean ± standard deviation", in bold for the best method."""
        mean, spread = self.scale * self.mean(method), self.scale * self.spread(method)
        if math.isnan(mean):
            return "–"
        text = f"{mean:.{self.digits}f}" + ("" if math.isnan(spread) else f" ± {spread:.{self.digits}f}")
        return f"**{text}**" if self.best() == method else text


@dataclass(frozen=True)
class Comparison:
    """Evaluations of several methods: for each method, one `Evaluation` (or its numbers) per seed.

    `costs` has costs that are not part of an evaluation, by method and name: `seconds` of training,
    `parameters`, and `milliseconds` per prediction.
    """

    results: Mapping[str, Sequence[Any]]
    costs: Mapping[str, Sequence[Mapping[str, float]]]

    @property
    def columns(self) -> list[Column]:
        """All metrics that at least one method has."""
        if not any(self.results.values()):
            raise RandomSetError("nothing to compare", got="no evaluations")

        def of(*path: str) -> dict[str, list[float]]:
            return {
                method: [value for seed in seeds if (value := _at(_numbers(seed), path)) is not None]
                for method, seeds in self.results.items()
            }

        columns = [
            Column("accuracy, %", of("test", "accuracy"), True, 100),
            Column("NLL, nats", of("test", "nll"), False, digits=4),
            Column("ECE", of("test", "ece"), False, digits=4),
            Column("NLL, one temperature", of("test", "scaled", "nll"), False, digits=4),
            Column("ECE, one temperature", of("test", "scaled", "ece"), False, digits=4),
            Column("entropy, bits", of("test", "scores", "entropy", "mean"), digits=3),
        ]
        unknown = (
            name for seeds in self.results.values() for seed in seeds for name in _numbers(seed)["ood"]
        )
        for name in dict.fromkeys(unknown):
            by = ("ood", name, "scores", "entropy")
            columns += [
                Column("AUROC, %", of(*by, "auroc"), True, 100, unknown=name),
                Column("AUPRC, %", of(*by, "auprc"), True, 100, unknown=name),
                Column("FPR95, %", of(*by, "fpr95"), False, 100, unknown=name),
                Column("entropy, bits", of(*by, "unknown", "mean"), digits=3, unknown=name),
            ]
            own = {m: self._own(m, name) for m in self.results}
            columns.append(Column("AUROC by its own score, %", own, True, 100, unknown=name))
        for key, title, digits in (
            ("milliseconds", "one prediction, ms", 2),
            ("seconds", "training, s", 1),
            ("parameters", "parameters", 0),
        ):
            values = {m: [cost[key] for cost in each if key in cost] for m, each in self.costs.items()}
            better = False if key == "milliseconds" else None
            columns.append(Column(title, values, better, digits=digits, cost=True))
        return [column for column in columns if any(column.values.values())]

    def _own(self, method: str, name: str) -> list[float]:
        """Return the AUROC of the method's own score: credal width, else mutual information, else vacuity."""
        values = []
        for seed in self.results[method]:
            scores = ("credal width", "mutual information", "vacuity")
            each = (_at(_numbers(seed), ("ood", name, "scores", score, "auroc")) for score in scores)
            values += [value for value in each if value is not None][:1]
        return values

    def to_markdown(self) -> str:
        """Return a Markdown table; bold marks leads larger than the standard deviations over seeds."""
        columns = self.columns
        lines = [
            "| method | " + " | ".join(c.name.replace("|", "\\|") for c in columns) + " |",
            "|---" * (len(columns) + 1) + "|",
        ]
        for method, each in self.results.items():
            name = f"{method} ({len(each)} seed{'s' if len(each) != 1 else ''})"
            lines.append(f"| {name} | " + " | ".join(c.cell(method) for c in columns) + " |")
        return "\n".join(lines) + "\n"

    def to_text(self) -> str:
        """Return a plain-text table: one row per metric, one column per method."""
        columns = self.columns
        head = ["", *(f"{method} ({len(each)})" for method, each in self.results.items())]
        rows = [head, *([c.name, *map(c.cell, self.results)] for c in columns)]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def to_csv(self) -> str:
        """Return CSV: one row per method, with the mean and standard deviation of every metric."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = self.columns
        writer.writerow(
            ["method", "seeds", *(f"{c.name} {part}" for c in columns for part in ("mean", "std"))]
        )
        for method, each in self.results.items():
            cells = [c.scale * value for c in columns for value in (c.mean(method), c.spread(method))]
            writer.writerow([method, len(each), *("" if math.isnan(v) else repr(v) for v in cells)])
        return text.getvalue()

    def to_json(self) -> str:
        """Return the values of every seed as JSON."""
        content = {
            c.name: {m: [c.scale * value for value in values] for m, values in c.values.items()}
            for c in self.columns
        }
        document = {"format": "randomset.comparison", "version": 1, "values": content}
        return json.dumps(document, indent=1) + "\n"

    def save(self, folder: Path) -> list[Path]:
        """Write comparison.md, comparison.csv and comparison.json."""
        folder = expanded(folder)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"md": self.to_markdown(), "csv": self.to_csv(), "json": self.to_json()}
        for ending, text in texts.items():
            write_text(text, folder / f"comparison.{ending}")
        return [folder / f"comparison.{ending}" for ending in texts]


def _numbers(evaluation: Any) -> Mapping[str, Any]:
    """Return the numbers of an `Evaluation`, or the argument itself if it is a mapping."""
    return getattr(evaluation, "numbers", evaluation)


def _at(numbers: Any, path: Sequence[str]) -> float | None:
    for name in path:
        if not isinstance(numbers, Mapping) or name not in numbers:
            return None
        numbers = numbers[name]
    return None if numbers is None else float(numbers)
