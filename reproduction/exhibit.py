"""A table or figure of the paper as a program: what to train and measure, how to show it, what to say."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from randomset._core.checks import is_number
from randomset._core.files import read_document, replacing, write_document
from randomset.errors import FileFormatError
from randomset.evaluation.result import sayable
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
    """One table or figure of the paper.

    Args:
        id: such as "table-1".
        title: what it shows, in a few words.
        data: the paper's data sets that it needs, as `Scale.settings` names them.
        models: which models it needs, of a workshop.
        measure: what is measured on them, as numbers that JSON can hold.
        tables: the numbers beside those that the paper prints.
        verdict: a sentence on whether the paper's claim held.
        figures: pictures of the same, by name.
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
        """Return how long its trainings would take at the paper's rate, that of CIFAR-10 on its GPU."""
        return sum(MINUTES[config.method] for config in dict.fromkeys(self.models(shop))) / 60

    def run(self, shop: Workshop, figures: bool = True) -> Outcome:
        """Train what is missing, measure, draw, and keep the outcome in the workshop's folder."""
        shop.train(self.models(shop))
        start = time.perf_counter()
        shop.reused.clear()
        numbers = sayable(self.measure(shop))
        configs = dict.fromkeys(self.models(shop))
        outcome = Outcome(
            id=self.id,
            scale=shop.scale.name,
            seeds=len(shop.seeds),
            training=sum(_seconds(shop.place(config)) for config in configs),
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
                "the numbers of a result are not those of its table",
                got=f"{outcome.id} at scale {outcome.scale}: {error!r}",
                remedy=f"Measure it again: python -m reproduction run {outcome.id} --scale {outcome.scale}",
            ) from error


@dataclass(frozen=True)
class Outcome:
    """What was measured for a table or figure, and at what price in seconds.

    `reused` are the seconds of measurements that were made for another table or figure before.
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
        """How long everything takes where nothing was made before."""
        return self.training + self.measuring + self.reused

    def save(self, folder: Path) -> Path:
        """Write result.json."""
        import randomset

        content: dict[str, Any] = {"randomset": randomset.__version__, "id": self.id, "scale": self.scale}
        content |= {"seeds": self.seeds, "numbers": self.numbers}
        content |= {name: round(getattr(self, name)) for name in ("training", "measuring", "reused")}
        folder.mkdir(parents=True, exist_ok=True)
        write_document(_short(content), folder / "result.json", _FORMAT, _VERSION, indent=1)
        return folder / "result.json"

    @classmethod
    def load(cls, path: Path) -> Outcome:
        """Read what `save` wrote."""
        content = read_document(path, _FORMAT, _VERSION, "a result of the paper's")
        kinds: dict[str, Callable[[Any], bool]] = {
            **dict.fromkeys(("id", "scale"), lambda value: isinstance(value, str)),
            **dict.fromkeys(("seeds", "training", "measuring", "reused"), is_number),
            "numbers": lambda value: isinstance(value, dict),
        }
        if wrong := [name for name, right in kinds.items() if not right(content.get(name))]:
            raise FileFormatError(
                "a result of the paper's cannot be read",
                got=f"{path}, whose {wrong[0]} is missing or of another kind",
                remedy="Measure it again: python -m reproduction run",
            )
        return cls(**{name: content[name] for name in kinds})


def over_seeds(values: Sequence[float | None] | None, scale: float = 100, digits: int = 2) -> str:
    """Write the mean, and the standard deviation if there are several.

    >>> over_seeds([0.9, 0.92]), over_seeds([0.5], 1, 3), over_seeds(None)
    ('91.00 ± 1.41', '0.500', '–')
    """
    found = [scale * value for value in values or [] if value is not None]
    if not found:
        return "–"
    spread = f" ± {np.std(found, ddof=1):.{digits}f}" if len(found) > 1 else ""
    return f"{np.mean(found):.{digits}f}{spread}"


def mean_of(values: Sequence[float | None] | None) -> float:
    """Return the mean over seeds, NaN of none."""
    found = [value for value in values or [] if value is not None]
    return float(np.mean(found)) if found else math.nan


def moments(values: Mapping[str, Sequence[float]], digits: int = 3) -> str:
    """Write a mean with the deviation over samples, as the paper does, each the mean over seeds."""
    return f"{mean_of(values['mean']):.{digits}f} ± {mean_of(values['std']):.{digits}f}"


def _seconds(run: Path) -> float:
    return seconds_of(run) or 0.0


def _short(value: Any) -> Any:
    """Round numbers to six digits: what is printed needs no more, and files stay small."""
    if isinstance(value, Mapping):
        return {name: _short(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
