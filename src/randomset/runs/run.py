"""A run: a folder with a trained model, its settings, data split, threshold and evaluation."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

from randomset._core.files import expanded, lock_folder
from randomset.data.sources import Source
from randomset.errors import FileFormatError, RandomSetError
from randomset.evaluation.evaluator import evaluate
from randomset.evaluation.prediction import predictions_of
from randomset.evaluation.predictor import Prediction, as_predictor
from randomset.evaluation.result import Evaluation
from randomset.evaluation.robustness import EPSILONS, NOISE, ROTATION
from randomset.models import load as load_model
from randomset.models.base import Classifier
from randomset.models.prediction import Threshold
from randomset.runs.data import HeldOut, NetworkInputs, drawn, measured_inputs, own_data
from randomset.runs.training import seconds_of, train_run
from randomset.runs.wrapping import wrap_run
from randomset.training.config import TrainConfig

__all__ = ["Measurement", "Run", "evaluate_run"]

logger = logging.getLogger(__name__)


class Run:
    """A run folder; files are read when they are needed.

    Args:
        folder: the folder of the run, as in `randomset train --out`.

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
            resume: whether to resume the run in the folder.
            strict: whether to raise an error for unreadable images instead of skipping them.
            base: the run of a softmax network with the same settings, which "temperature" and
                "laplace-bridge" build on.
        """
        run = cls(folder)
        budget, base = (None if path is None else expanded(path) for path in (budget, base))
        with lock_folder(run.folder):
            train_run(config, run.folder, budget=budget, resume=resume, strict=strict, base=base)
        return run

    @classmethod
    def wrap(
        cls,
        classifier: str | Path,
        folder: str | Path,
        source: str | Path | None = None,
        *,
        reliability: str = "auto",
        **options: Any,
    ) -> Run:
        """Turn a trained softmax classifier into a random-set classifier: see `randomset.wrap`.

        Samples that the classifier was trained on are recognised by the split of its run, and none of them is
        used for validation or tests. If the folder of the classifier has no split, the source must be data
        that it was not trained on.

        Args:
            classifier: the run of a softmax network; another model.safetensors, or its folder; or a
                classifier of another library by name, such as "torchvision:resnet18" or "timm:resnet18", or
                "hf:" with a name or a folder.
            folder: the run folder to write.
            source: labelled data; by default, those that the run was trained on, with the same split.
            reliability: "auto", "neighbours" or "gaussians".
            options: `label_column`, `text_column`, and how to split a source that the classifier was not
                trained on: `validation`, `calibration` and `test`, shares or numbers of samples, and `seed`;
                `strict` rejects images that cannot be read. For a classifier by name, `weights`, "default"
                for the published ones or a file, and `size`, that of its images.
        """
        run, name = cls(folder), None if source is None else str(source)
        with lock_folder(run.folder):
            wrap_run(classifier, run.folder, name, reliability=reliability, **options)
        return run

    def resume(self) -> Run:
        """Resume interrupted training from its last checkpoint; a finished run is unchanged."""
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
        """Return a digest of the model's file, by which changes of the model are detected."""
        try:
            content = (self.folder / "model.safetensors").read_bytes()
        except OSError:
            raise FileFormatError(
                "the run has no model file",
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
        """Load a source in the form that the model takes; its remarks report conversions."""
        return NetworkInputs(self.model, self.folder, strict, text_column)(
            str(source), split, labelled=labelled
        )

    def data(self, test: str | None = None, validation: str | None = None) -> HeldOut:
        """Return (test, validation, calibration) data: the named sources, or the held-out samples."""
        return own_data(self.folder, NetworkInputs(self.model, self.folder, False), test, validation)

    def evaluate(
        self, test: str | Path | None = None, ood: Mapping[str, str | Path] | None = None, **options: Any
    ) -> Evaluation:
        """Evaluate the model, and write evaluation.json, evaluation.md, scores.npz and threshold.json.

        Args:
            test: labelled data to test on; by default, the held-out samples. Samples that the run was trained
                on are excluded, and a remark of the result reports their number.
            ood: data of unknown classes, by name.
            options: `validation` (data to choose the threshold on; by default held out), `ood_samples`
                (use at most this many of each), `sweeps` (noise and rotation; default True), `attacks`
                (True, or the ε to use), `autoattack` (an ε), `timing`, `strict` (reject
                images that cannot be read), `out` (a folder for the results), `seed`, `devices`, and those
                of `randomset.evaluation.evaluate`.
        """
        result = evaluate_run(self, test=test, ood=ood, **options).result
        for remark in result["remarks"]:
            logger.info("%s.", remark)
        return result

    def predict(self, source: Any, *, batch_size: int = 256, strict: bool = False) -> Prediction:
        """Predict all inputs of a source, by name or path, or whatever `Classifier.predict` takes."""
        if not isinstance(source, (str, Path, Source)):
            return Prediction.of(self.model.predict(source, batch_size=batch_size))
        data = source if isinstance(source, Source) else self.load(source, labelled=False, strict=strict)
        return predictions_of(
            as_predictor(self.model), data, data.name, batch_size=batch_size, progress=False
        ).prediction

    def report(self, out: str | Path | None = None) -> Path:
        """Write report.html from the stored evaluation; return its path."""
        from randomset.report.run_report import report_of_run  # above this package: see tests/test_imports.py

        return report_of_run(self, self.folder if out is None else expanded(out))


# -- evaluation ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """An evaluation, its data in the form that the model takes, and the files it was written to."""

    result: Evaluation
    test: Source
    ood: dict[str, Source]
    files: list[Path]


def evaluate_run(
    run: Run,
    *,
    test: str | Path | None = None,
    ood: Mapping[str, str | Path] | None = None,
    ood_samples: int | None = None,
    validation: str | Path | None = None,
    sweeps: bool = True,
    attacks: bool | Sequence[float] = False,
    autoattack: float | None = None,
    timing: bool = False,
    strict: bool = False,
    out: str | Path | None = None,
    seed: int = 0,
    devices: int = 1,
    **options: Any,
) -> Measurement:
    """Implement `Run.evaluate`, with the same arguments; also return the data and the files."""
    folder, model = run.folder if out is None else expanded(out), run.model
    for source in (test, validation, *(ood or {}).values()):
        if not isinstance(source, (str, Path, NoneType)):
            raise RandomSetError(
                "a run must be evaluated on data that can be loaded again",
                got=type(source).__name__,
                expected="a name or path",
                remedy="Measure data in memory with rs.evaluate(run.model, …)",
            )
    names = {name: str(source) for name, source in (ood or {}).items()}
    test, validation = (None if source is None else str(source) for source in (test, validation))
    with lock_folder(folder):
        load = NetworkInputs(model, run.folder, strict)
        tested, held, calibration = own_data(run.folder, load, test, validation)
        unknown = {
            name: drawn(load(source, labelled=False), ood_samples, seed) for name, source in names.items()
        }
        images = tested.kind == "images" and _are_pixels(tested)
        if sweeps and tested.kind == "images" and not images:
            logger.info("Noise and rotation are skipped: the images are not pixels in [0, 1].")
        result = evaluate(
            model,
            tested,
            unknown,
            validation=held,
            calibration=calibration,
            classes=model.notes.get("classes"),
            threshold=run.threshold if held is None else None,
            noise=NOISE if sweeps and images else (),
            rotation=ROTATION if sweeps and images else (),
            attacks=EPSILONS if attacks is True else attacks or (),
            autoattack=() if autoattack is None else (autoattack,),
            timing=timing,
            devices=devices,
            seed=seed,
            **options,
        )
        result.numbers["run"] = {
            "folder": str(run.folder),
            "test": tested.name,
            "test_source": test,
            "ood": names,
            "ood_samples": ood_samples,
            "seed": seed,
            "config": load.config,
        }
        files = result.save(folder)
        if held is not None:
            chosen = result["threshold"]
            files.append(Threshold(chosen["score"], chosen["value"], chosen["share"]).save(folder))
    kept = {name: measured_inputs(source, result, name) for name, source in unknown.items()}
    return Measurement(result, tested, kept, files)


def _are_pixels(source: Source) -> bool:
    whole = not source.inputs.is_floating_point()
    return whole or bool(source.inputs.min() >= 0 and source.inputs.max() <= 1)
