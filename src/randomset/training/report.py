"""The result of `fit`, and the exception raised when training is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from randomset.errors import MissingPackageError
from randomset.models.reliability_fitting import ReliabilityReport
from randomset.models.temperature import CalibrationReport

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["FitReport", "TrainingStopped"]


@dataclass(frozen=True)
class FitReport:
    """Result of a training run: one history row per epoch, and reports of what was fitted afterwards."""

    history: list[dict[str, float]]
    folder: Path | None = None
    calibration: CalibrationReport | None = None
    planned: int = 0
    """Number of planned epochs; fewer are run if a callback stops early."""
    kept: Literal["last", "best"] = "last"
    """Which epoch's weights were kept."""
    reliability: ReliabilityReport | None = None

    @property
    def last(self) -> dict[str, float]:
        """Row of the last epoch."""
        return self.history[-1]

    @property
    def best(self) -> dict[str, float]:
        """Row of the epoch with the highest validation accuracy; ties are broken by the lowest loss."""
        return max(
            self.history, key=lambda row: (row.get("val_accuracy", 0.0), -row.get("val_loss", row["loss"]))
        )

    def to_frame(self) -> DataFrame:
        """Return the history as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise MissingPackageError("pandas", "frames") from None
        return pandas.DataFrame(self.history)

    def __str__(self) -> str:
        row = self.best if self.kept == "best" else self.last
        done = int(self.last["epoch"])
        text = f"{done} epoch{'' if done == 1 else 's'}"
        text += f" of {self.planned}, stopped early" if done < self.planned else ""
        text += f", kept epoch {int(row['epoch'])}" if self.kept == "best" else ""
        text += f", loss {row['loss']:.4f}"
        if "val_accuracy" in row:
            text += f", validation accuracy {row['val_accuracy']:.2%}, ECE {row['val_ece']:.3f}"
        if "val_negative_mass" in row:
            text += f", {row['val_negative_mass']:.1%} of the raw mass negative"
        fitted = (self.calibration, self.reliability)
        return "\n".join([text, *(str(report) for report in fitted if report is not None)])


class TrainingStopped(KeyboardInterrupt):
    """Training was stopped by Ctrl-C or SIGTERM; the message explains how to resume."""

    def __init__(self, message: str, number: int, checkpoint: Path | None) -> None:
        super().__init__(message)
        self.signal, self.checkpoint = number, checkpoint
