"""One run: a folder with a trained model, its settings, its split, its threshold and what was measured."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from randomset._core.files import expanded
from randomset._core.locks import lock_folder
from randomset.data.sources import Source
from randomset.errors import FileFormatError
from randomset.evaluation.ood import Threshold
from randomset.evaluation.prediction import predictions_of
from randomset.evaluation.predictor import Prediction, as_predictor
from randomset.evaluation.result import Evaluation
from randomset.models import load as load_model
from randomset.models.base import Classifier
from randomset.runs.data import HeldOut, own_data
from randomset.runs.evaluation import evaluate_run
from randomset.runs.inputs import NetworkInputs
from randomset.runs.training import seconds_of, train_run
from randomset.training.config import TrainConfig

__all__ = ["Run"]

logger = logging.getLogger(__name__)


class Run:
    """A run folder. Nothing is read before it is needed.

    Args:
        folder: where the run is stored, as `randomset train --out` names it.

    >>> run = Run("runs/not-yet-trained")
    >>> run.is_trained
    False
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = expanded(folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @classmethod
    def train(
        cls,
        config: TrainConfig,
        folder: str | Path,
        *,
        budget: str | Path | None = None,
        resume: bool = False,
        strict: bool = False,
        base: str | Path | None = None,
    ) -> Run:
        """Train a model as configured, and test it once on held-out samples.

        Progress goes to the logger "randomset", a line for each epoch to "randomset.training.epochs".

        Args:
            config: the settings.
            folder: the run folder to write.
            budget: a budget.json to use instead of choosing the sets.
            resume: continue from what is in the folder.
            strict: reject images that cannot be read instead of leaving them out.
            base: the run of a softmax network with the same settings, which "temperature" and
                "laplace-bridge" then build on.
        """
        run = cls(folder)
        budget, base = (None if path is None else expanded(path) for path in (budget, base))
        with lock_folder(run.folder):
            train_run(config, run.folder, budget=budget, resume=resume, strict=strict, base=base)
        return run

    def resume(self) -> Run:
        """Continue an interrupted training from its last checkpoint; a finished run stays as it is."""
        return self if self.is_trained else Run.train(self.config, self.folder, resume=True)

    @property
    def config(self) -> TrainConfig:
        """The settings that the run was started with."""
        return TrainConfig.load(self.folder)

    @property
    def is_trained(self) -> bool:
        """Whether training has finished."""
        return (self.folder / "test.json").exists()

    @cached_property
    def model(self) -> Classifier:
        """The trained model, loaded once."""
        return load_model(self.folder)

    @property
    def threshold(self) -> Threshold | None:
        """The largest uncertainty of an input that counts as known, if one was chosen."""
        return Threshold.load(self.folder)

    @property
    def seconds(self) -> float | None:
        """The seconds spent on training, if they were recorded."""
        return seconds_of(self.folder)

    def digest(self) -> str:
        """Return a digest of the model's file: another one means another model."""
        try:
            content = (self.folder / "model.safetensors").read_bytes()
        except OSError:
            raise FileFormatError(
                "a run has lost its model",
                got=str(self.folder),
                remedy="Delete the folder: the same command trains it again",
            ) from None
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def load(
        self,
        source: str | Path,
        split: str = "test",
        *,
        labelled: bool = True,
        strict: bool = False,
        text_column: str | None = None,
    ) -> Source:
        """Load a source in the form that the model takes; its remarks report what was converted."""
        return NetworkInputs(self.model, self.folder, strict, text_column)(
            str(source), split, labelled=labelled
        )

    def data(self, test: str | None = None, validation: str | None = None) -> HeldOut:
        """Return (test, validation, calibration) data: those that are named, else those held out."""
        return own_data(self.folder, NetworkInputs(self.model, self.folder, False), test, validation)

    def evaluate(
        self, test: str | Path | None = None, ood: Mapping[str, str | Path] | None = None, **options: Any
    ) -> Evaluation:
        """Measure the model, and write evaluation.json, evaluation.md, scores.npz and threshold.json.

        Args:
            test: labelled data to test on; else the held-out samples. Samples that the run was trained on are
                excluded, and a remark of the result gives their number.
            ood: data of no class that the model knows, by name.
            options: `validation` (data to choose the threshold on; else held-out samples), `ood_samples`
                (use at most this many of each), `sweeps` (noise and rotation; default True), `attacks`
                (True, or the ε to use), `autoattack` (an ε), `timing` (default True), `strict` (reject
                images that cannot be read), `out` (a folder for the results), `seed`, `devices`, and those
                of `randomset.evaluation.evaluate`.
        """
        result = evaluate_run(self, test=test, ood=ood, **options).result
        for remark in result["remarks"]:
            logger.info("%s.", remark)
        return result

    def predict(self, source: str | Path, *, batch_size: int = 256, strict: bool = False) -> Prediction:
        """Predict all inputs of a source."""
        data = self.load(source, labelled=False, strict=strict)
        return predictions_of(
            as_predictor(self.model), data, data.name, batch_size=batch_size, progress=False
        ).prediction

    def report(self, out: str | Path | None = None) -> Path:
        """Write report.html from what was measured; return its path."""
        from randomset.report.run_report import report_of_run  # above this package: see tests/test_imports.py

        return report_of_run(self, self.folder if out is None else expanded(out))
