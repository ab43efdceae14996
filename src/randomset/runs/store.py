"""A collection of runs in one folder, each trained and evaluated once, with comparable settings and data."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from randomset._core.checks import is_number
from randomset._core.files import expanded, lock_folder, read_document, write_document
from randomset.data.sources import load_source
from randomset.data.splits import fingerprint, resolved
from randomset.errors import FileFormatError, RandomSetError, ShapeError
from randomset.evaluation.comparison import Comparison
from randomset.evaluation.metrics import in_turns
from randomset.evaluation.result import Evaluation
from randomset.models.storage import classifier_class, methods
from randomset.runs.run import Run, evaluate_run
from randomset.runs.training import train_run
from randomset.training.config import TrainConfig

__all__ = [
    "MEASURED",
    "RunStore",
    "base_method",
    "check_data",
    "check_settings",
    "fingerprints",
    "time_to_go",
]

logger = logging.getLogger(__name__)

_MEASURED, _TIMES = "randomset.measured", "randomset.times"
MEASURED = "comparison"
"""The folder within a run for evaluations of a comparison; `randomset evaluate` writes to the run folder."""

Draw = Callable[[Evaluation, Path], object]


class RunStore:
    """Runs in a folder, by method and seed.

    Args:
        folder: where the runs are stored; finished runs are not trained again.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = expanded(folder)

    def run(self, config: TrainConfig) -> Run:
        """Return the run of a configuration, trained or not."""
        return Run(self.folder / config.method / f"seed-{config.seed}")

    def title(self, config: TrainConfig) -> str:
        """Return the name of a run in messages."""
        return f"{config.method}, seed {config.seed}"

    def complete_methods(self, seeds: int) -> list[str]:
        """Return the methods that were trained with every seed."""
        configs = {name: [TrainConfig(method=name, seed=seed) for seed in range(seeds)] for name in methods()}
        return [name for name in configs if all(self.run(config).is_trained for config in configs[name])]

    def check_same(self, configs: Sequence[TrainConfig], contents: str | None = None) -> None:
        """Reject stored runs with different settings or, if a fingerprint is given, different data."""
        for config in configs:
            check_settings(self.run(config), config)
            if contents is not None:
                check_data(self.run(config), config, contents)

    # -- training -------------------------------------------------------------------------------

    def train(self, configs: Sequence[TrainConfig], then: float = 0.0) -> list[Run]:
        """Train missing runs and resume interrupted ones; return all runs.

        Progress is logged with an estimate of the remaining time; `then` is added to it: the seconds needed
        after training.
        """
        unique = list(dict.fromkeys(configs))
        ordered = sorted(unique, key=lambda config: base_method(config) is not None)
        missing = [config.checked() for config in ordered if not self.run(config).is_trained]
        for number, config in enumerate(missing):
            expected = self._expected(missing[number:], unique)
            left = time_to_go(None if expected is None else expected + then)
            place = ordered.index(config) + 1
            logger.info(f"Model {place} of {len(ordered)}: {self.title(config)}{left}")
            self.trained(config)
        return [self.run(config) for config in configs]

    def trained(self, config: TrainConfig) -> Run:
        """Return a trained run; train it if missing, resume it if interrupted."""
        run = self.run(config)
        if run.is_trained:
            return run
        base = None if config.freeze else self.base(config)
        try:
            with lock_folder(run.folder):
                self._train(config, run.folder, None if base is None else base.folder)
            return run
        except FileFormatError as error:
            if not (run.folder / "checkpoints").exists():
                raise
            raise FileFormatError(f"{error}. To train it again, delete {run.folder}") from None

    def _train(self, config: TrainConfig, folder: Path, base: Path | None) -> None:
        resume = any((folder / name).exists() for name in ("config.json", "first"))
        train_run(config, folder, resume=resume, base=base)

    def base(self, config: TrainConfig) -> Run | None:
        """Return the trained run that a method can build on, as temperature scaling does on softmax."""
        method = base_method(config)
        run = None if method is None else self.run(replace(config, method=method))
        return run if run is not None and run.is_trained else None

    def _expected(self, missing: Sequence[TrainConfig], configs: Sequence[TrainConfig]) -> float | None:
        """Estimate the seconds of training by runs with the same data, method and backbone, else by all."""
        known: dict[tuple[str, str, str], list[float]] = {}
        for config in configs:
            run = self.run(config)
            seconds = run.seconds if run.is_trained else None
            if seconds is not None:
                known.setdefault((config.source, config.method, config.backbone), []).append(seconds)
        if not known:
            return None
        usual = fmean(seconds for each in known.values() for seconds in each)
        keys = [(config.source, config.method, config.backbone) for config in missing]
        return sum(fmean(known.get(key, [usual])) for key in keys)

    # -- measuring ------------------------------------------------------------------------------

    def evaluate(
        self,
        run: Run,
        *,
        contents: Mapping[str, str],
        ood: Mapping[str, str],
        ood_samples: int | None = None,
        seed: int = 0,
        draw: Draw | None = None,
    ) -> Evaluation:
        """Measure a run into its folder `comparison`, unless the same was measured before.

        Args:
            run: a trained run.
            contents: fingerprints of the data; if they change, the run is evaluated again.
            ood: data of unknown classes, by name.
            ood_samples: the maximum number of inputs of each.
            seed: seed of all random numbers.
            draw: saves the figures of an evaluation to a folder, such as `randomset.report.draw_all`.
        """
        folder, figures = run.folder / MEASURED, draw is not None
        options: dict[str, Any] = {"ood": dict(ood), "ood_samples": ood_samples, "seed": seed}
        mark = {"contents": dict(contents), "model": run.digest(), **options}
        try:
            stored = read_document(folder / "measured.json", _MEASURED, 1, "the measurement")
            if {**stored, **mark} == stored and (stored["figures"] or not figures):
                result = Evaluation.load(folder)
                if set(result["ood"]) == set(ood) and "test" in result:
                    return result
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # FileFormatError is a ValueError
            pass
        logger.info(f"Measuring {run.folder} …")
        result = evaluate_run(run, **options, sweeps=False, out=folder).result
        if draw is not None:
            draw(result, folder / "figures")
        write_document({**mark, "figures": figures}, folder / "measured.json", _MEASURED, 1)
        return result

    def costs(self, run: Run) -> dict[str, float]:
        """Return the number of parameters of a run, and the seconds of its training if they were recorded."""
        count = float(sum(parameter.numel() for parameter in run.model.parameters()))
        seconds = run.model.notes.get("seconds")
        return {"parameters": count} | ({} if seconds is None else {"seconds": float(seconds)})

    def times(self, runs: Mapping[str, Run], path: Path) -> dict[str, float]:
        """Return the milliseconds of a single prediction by each model, measured in turns and stored.

        `path` is the file to store them in.
        """
        digests = {name: run.digest() for name, run in runs.items()}
        try:
            stored = read_document(path, _TIMES, 1, "the times")
            if stored["models"] == digests and all(is_number(stored["milliseconds"][name]) for name in runs):
                return {name: float(stored["milliseconds"][name]) for name in runs}
        except (FileFormatError, KeyError, TypeError):
            pass
        models = {name: run.model for name, run in runs.items()}
        notes = next(iter(models.values())).notes
        example = torch.rand(1, *notes["input_shape"])
        if notes.get("tokens"):  # a text of a few words, and padding
            example = torch.full(example.shape, -1)
            example[:, :8] = 1
        milliseconds = in_turns(models, example)
        write_document({"models": digests, "milliseconds": milliseconds}, path, _TIMES, 1)
        return milliseconds

    def compare(self, configs: Sequence[TrainConfig], **options: Any) -> Comparison:
        """Evaluate trained runs of several methods and seeds; the options are those of `evaluate`."""
        seeds = sorted({config.seed for config in configs})
        methods = list(dict.fromkeys(config.method for config in configs))
        results: dict[str, list[Any]] = {name: [] for name in methods}
        costs: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
        for seed in seeds:
            runs = {config.method: self.run(config) for config in configs if config.seed == seed}
            times = self.times(runs, self.folder / f"timing-{seed}.json")
            for name, run in runs.items():
                results[name].append(self.evaluate(run, seed=seed, **options).numbers)
                costs[name].append({**self.costs(run), "milliseconds": times[name]})
        return Comparison(results, costs)


def base_method(config: TrainConfig) -> str | None:
    """Return the method whose trained model the configured method can build on, if any."""
    return classifier_class(config.method).base_method


def time_to_go(seconds: float | None) -> str:
    """Return an estimate of the remaining time for the end of a line.

    >>> time_to_go(600), time_to_go(20), time_to_go(None)
    (', about 10 min to go', ', about 1 min to go', '')
    """
    return "" if seconds is None else f", about {max(1, round(seconds / 60))} min to go"


def check_settings(run: Run, config: TrainConfig) -> None:
    """Reject a stored run whose settings differ from a configuration."""
    if not (run.folder / "config.json").exists():
        return
    stored, wanted = (dataclasses.asdict(each.located()) for each in (run.config, config))
    if config.backbone == "auto":
        wanted["backbone"] = stored["backbone"]
    if config.weights != "none" and config.size is None:
        wanted["size"] = stored["size"]  # the size that the weights were trained with
    different = [
        f"{name} {stored[name]} instead of {wanted[name]}" for name in wanted if stored[name] != wanted[name]
    ]
    if different:
        raise FileFormatError(
            "the folder contains a run with different settings",
            got=f"{run.folder}: {', '.join(different)}",
            remedy="Choose another folder with --out, or use the same settings",
        )


def check_data(run: Run, config: TrainConfig, contents: str) -> None:
    """Reject a stored run whose training data had a different fingerprint."""
    if config.size is not None or config.weights != "none" or config.backbone.startswith("hf:"):
        return  # the fingerprint of a run is of resized images or tokens, which training itself compares
    try:
        stored = json.loads((run.folder / "split.json").read_text(encoding="utf-8")).get("contents")
    except (OSError, ValueError, AttributeError, RecursionError):
        return  # not written yet, or damaged, which is reported where it is read
    if stored not in (None, contents):
        raise FileFormatError(
            "the data have changed since a run in the folder was trained",
            got=str(run.folder),
            remedy="Restore the data, or choose another folder with --out",
        )


def fingerprints(config: TrainConfig, ood: Mapping[str, str]) -> dict[str, str]:
    """Load all data, to detect unusable data before training, and return their fingerprints.

    The key of the training data is "".
    """
    columns: dict[str, Any] = {"label": config.label_column, "text": config.text_column}
    size = None if config.size is None else (config.size, config.size)
    data = load_source(config.source, size=size, **columns)
    if data.labels.dim() > 1:
        raise RandomSetError(
            "methods are compared on data with one class per sample",
            got=f"set-valued labels of {data.name}",
            remedy="randomset train accepts them",
        )
    contents = {"": fingerprint(data)}
    for name, source in ood.items():
        if name in ("test", "validation", "calibration"):
            raise RandomSetError("this name is reserved", got=f"--ood {name}=…", expected="another name")
        if resolved(source) == resolved(config.source) and config.test:
            raise RandomSetError("the unknown data are the training data", got=f"--ood {name}={source}")
        more: dict[str, Any] = {"columns": data.columns} if data.kind == "features" else {}
        unknown = load_source(source, "test", labelled=False, size=size, **columns, **more)
        alike = unknown.kind == data.kind
        if alike and data.kind == "features":
            alike = unknown.inputs.shape[1:] == data.inputs.shape[1:]
        if not alike:
            raise ShapeError(
                "the unknown data are of a different kind than the training data",
                got=repr(unknown),
                expected=f"the kind of {data!r}",
            )
        contents[name] = fingerprint(unknown)
    return contents
