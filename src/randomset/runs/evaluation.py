"""Evaluation of a run on its held-out samples or other data, stored in the run folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from randomset._core.files import expanded, lock_folder
from randomset.data.sources import Source
from randomset.evaluation.evaluator import evaluate
from randomset.evaluation.result import Evaluation
from randomset.evaluation.robustness import EPSILONS, NOISE, ROTATION
from randomset.models.prediction import Threshold
from randomset.runs.data import NetworkInputs, drawn, measured_inputs, own_data

if TYPE_CHECKING:
    from randomset.runs.run import Run

__all__ = ["Measurement", "evaluate_run"]

logger = logging.getLogger(__name__)


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
    timing: bool = True,
    strict: bool = False,
    out: str | Path | None = None,
    seed: int = 0,
    devices: int = 1,
    **options: Any,
) -> Measurement:
    """Implement `Run.evaluate`, with the same arguments; also return the data and the files."""
    folder, model = run.folder if out is None else expanded(out), run.model
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
            timing=timing and devices == 1,
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
