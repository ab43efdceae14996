"""A table or figure of the paper: the models it needs, what is measured, and how it is presented."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from randomset import __version__
from randomset._core.checks import is_number
from randomset._core.files import read_document, replacing, write_document
from randomset.errors import FileFormatError
from randomset.evaluation.result import json_safe
from randomset.evaluation.tables import Table
from randomset.runs.training import seconds_of
from randomset.training.config import TrainConfig
from reproduction.printed import MINUTES
from reproduction.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Exhibit", "Outcome", "mean_of", "moments", "over_seeds"]

Numbers = dict[str, Any]
_FORMAT, _VERSION = "randomset.paper", 1


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper.

    Args:
        id: such as "table-1".
        title: what it shows.
        data: the paper's data sets that it needs, by their names in `Scale.settings`.
        models: returns the configurations of the models it needs.
        measure: returns the measurements as values that JSON can hold.
        tables: presents the measurements beside the paper's values.
        verdict: states whether the paper's claim was confirmed.
        figures: draws the measurements; returns figures by name.
    """

    id: str
    title: str
    data: tuple[str, ...]
    models: Callable[[Workshop], list[TrainConfig]]
    measure: Callable[[Workshop], Numbers]
    tables: Callable[[Numbers], list[Table]]
    verdict: Callable[[Numbers], str]
    figures: Callable[[Workshop, Numbers], Mapping[str, Figure]] | None = None

    def gpu_hours(self, shop: Workshop) -> float:
        """Estimate the training time from the paper's training times on CIFAR-10 (Table 6)."""
        return sum(MINUTES[config.method] for config in dict.fromkeys(self.models(shop))) / 60

    def run(self, shop: Workshop, figures: bool = True) -> Outcome:
        """Train missing models, measure, draw, and save the outcome in the workshop's folder."""
        shop.train(self.models(shop))
        start = time.perf_counter()
        shop.reused.clear()
        numbers = json_safe(self.measure(shop))
        configs = dict.fromkeys(self.models(shop))
        outcome = Outcome(
            id=self.id,
            scale=shop.scale.name,
            seeds=len(shop.seeds),
            training=sum(seconds_of(shop.place(config)) or 0.0 for config in configs),
            measuring=time.perf_counter() - start,
            reused=sum(shop.reused.values()),
            numbers=numbers,
        )
        folder = shop.folder / self.id
        outcome.save(folder)
        with replacing(folder / "table.md") as temporary:
            temporary.write_text(self.text(outcome) + "\n", encoding="utf-8")
        if figures and self.figures is not None:
            for name, figure in self.figures(shop, numbers).items():
                with replacing(folder / f"{name}.png") as temporary:
                    figure.savefig(temporary, dpi=110, format="png")
        return outcome

    def text(self, outcome: Outcome) -> str:
        """Return the tables and the verdict as Markdown."""
        try:
            parts = [table.to_markdown() for table in self.tables(outcome.numbers)]
            return "\n\n".join([*parts, self.verdict(outcome.numbers)])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
            raise FileFormatError(
                "the result does not have the numbers of its table",
                got=f"{outcome.id} at scale {outcome.scale}: {error!r}",
                remedy=f"Measure it again: python -m reproduction run {outcome.id} --scale {outcome.scale}",
            ) from error


@dataclass(frozen=True)
class Outcome:
    """The measurements of a table or figure, and the time they took in seconds.

    `reused` is the time of measurements made earlier for another table or figure.
    """

    id: str
    scale: str
    seeds: int
    training: float
    measuring: float
    reused: float
    numbers: Numbers = field(repr=False)

    @property
    def seconds(self) -> float:
        """Total time if nothing is reused."""
        return self.training + self.measuring + self.reused

    def save(self, folder: Path) -> Path:
        """Write result.json."""
        content: dict[str, Any] = {"randomset": __version__, "id": self.id, "scale": self.scale}
        content |= {"seeds": self.seeds, "numbers": self.numbers}
        content |= {name: round(getattr(self, name)) for name in ("training", "measuring", "reused")}
        folder.mkdir(parents=True, exist_ok=True)
        write_document(_rounded(content), folder / "result.json", _FORMAT, _VERSION, indent=1)
        return folder / "result.json"

    @classmethod
    def load(cls, path: Path) -> Outcome:
        """Read a file written by `save`."""
        content = read_document(path, _FORMAT, _VERSION, "the result of a table or figure")
        checks: dict[str, Callable[[Any], bool]] = {
            **dict.fromkeys(("id", "scale"), lambda value: isinstance(value, str)),
            **dict.fromkeys(("seeds", "training", "measuring", "reused"), is_number),
            "numbers": lambda value: isinstance(value, dict),
        }
        if invalid := [name for name, check in checks.items() if not check(content.get(name))]:
            raise FileFormatError(
                "the result of a table or figure cannot be read",
                got=f"{path}: {invalid[0]} is missing or has the wrong type",
                remedy="Measure it again: python -m reproduction run",
            )
        return cls(**{name: content[name] for name in checks})


def over_seeds(values: Sequence[float | None] | None, scale: float = 100, digits: int = 2) -> str:
    """Format the mean over seeds, with the standard deviation if there is more than one.

    >>> over_seeds([0.9, 0.92]), over_seeds([0.5], 1, 3), over_seeds(None)
    ('91.00 ± 1.41', '0.500', '–')
    """
    known = [scale * value for value in values or [] if value is not None]
    if not known:
        return "–"
    spread = f" ± {np.std(known, ddof=1):.{digits}f}" if len(known) > 1 else ""
    return f"{np.mean(known):.{digits}f}{spread}"


def mean_of(values: Sequence[float | None] | None) -> float:
    """Return the mean over seeds, NaN if there are none."""
    known = [value for value in values or [] if value is not None]
    return float(np.mean(known)) if known else math.nan


def moments(values: Mapping[str, Sequence[float]], digits: int = 3) -> str:
    """Format the mean and the standard deviation over samples, as the paper does, averaged over seeds."""
    return f"{mean_of(values['mean']):.{digits}f} ± {mean_of(values['std']):.{digits}f}"


def _rounded(value: Any) -> Any:
    """Round all numbers to six significant digits, to keep files small."""
    if isinstance(value, Mapping):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
