"""Models of the paper's experiments, each trained once, and what was measured on them, each once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from randomset._core.files import replacing
from randomset._core.locks import lock_folder
from randomset.backbones.library import check_name
from randomset.data.catalogue import KNOWN, files_of
from randomset.data.splits import usual_shares
from randomset.errors import FileFormatError
from randomset.evaluation import Evaluation, evaluate
from randomset.evaluation.sweeps import NOISE, ROTATION
from randomset.runs.inputs import NetworkInputs, few, own_data
from randomset.runs.making import seconds_of, train_run
from randomset.training.method import MethodConfig
from reproduction.scales import Scale

__all__ = ["Workshop", "time_to_go"]


class Workshop:
    """Trains and measures at a scale, and keeps everything by its configuration in a folder.

    Args:
        scale: one of `SCALES`.
        folder: where models and measurements are kept; what is there is not made again.
        seeds: how many seeds; None means as many as the scale has.
        say: what to call with a line of text at every stage.
        say_epoch: what to call with a line for each epoch, if anything.
    """

    def __init__(
        self,
        scale: Scale,
        folder: Path,
        seeds: int | None = None,
        say: Callable[[str], object] = lambda text: None,
        say_epoch: Callable[[str], object] | None = None,
    ) -> None:
        self.scale, self.folder = scale, folder
        self.seeds = range(scale.seeds if seeds is None else seeds)
        self.say, self.say_epoch = say, say_epoch
        self.reused: dict[Path, float] = {}
        """Seconds that measurements once took which were there already when they were asked for."""

    def config(self, data: str, method: str = "rsnn", seed: int = 0, **changes: Any) -> MethodConfig:
        """Return the settings of a training on one of the paper's data sets."""
        options, _ = self.scale.setting(data, self.folder / "data")
        if method != "rsnn":  # what only a random-set network knows is the same for all others
            options = {
                name: value
                for name, value in options.items()
                if name not in ("num_sets", "hidden", "reducer")
            }
        options |= usual_shares(options["source"])
        return MethodConfig(**{**options, "method": method, "seed": seed, **changes})

    def place(self, config: MethodConfig) -> Path:
        """Return the run folder of a configuration."""
        digest = _digest(_changes(config))
        name = f"{Path(config.source).stem}-{config.method}-{config.seed}-{digest}"
        return self.folder / "models" / name

    def is_trained(self, config: MethodConfig) -> bool:
        """Say whether a model is there."""
        return (self.place(config) / "test.json").exists()

    def check(self, data: Iterable[str], configs: Sequence[MethodConfig]) -> None:
        """Refuse before any training what could only fail after hours: data or networks that are not here."""
        wanted = dict.fromkeys((config.source, split) for config in configs for split in ("train", "test"))
        for name in data:
            _, unknown = self.scale.setting(name, self.folder / "data")
            wanted |= dict.fromkeys((source, "test") for source in unknown.values())
        for source, split in wanted:
            if source in KNOWN:
                files_of(source, split)
        for backbone in {config.backbone for config in configs if ":" in config.backbone}:
            check_name(backbone)

    def train(self, configs: Sequence[MethodConfig], then: float = 0.0) -> None:
        """Train what is not there yet; an interruption loses at most an epoch of one of them.

        `then` are the seconds that follow the trainings, for the time to go.
        """
        every = list(dict.fromkeys(configs))
        missing = [config.checked() for config in every if not self.is_trained(config)]
        missing.sort(key=lambda config: config.method == "laplace-bridge")  # builds on softmax
        for number, config in enumerate(missing):
            expected = self._expected(missing[number:], every)
            left = time_to_go(None if expected is None else expected + then)
            name = f"{Path(config.source).stem}, {config.method}, seed {config.seed}"
            self.say(f"Model {number + 1} of {len(missing)}: {name}{left}")
            self.trained(config)

    def _expected(self, missing: Sequence[MethodConfig], every: Sequence[MethodConfig]) -> float | None:
        """Guess how long trainings take by those of the same data, method and network, else by all."""

        def alike(config: MethodConfig) -> tuple[str, str, str]:
            return config.source, config.method, config.backbone

        known: dict[tuple[str, str, str], list[float]] = {}
        for config in every:
            seconds = seconds_of(self.place(config)) if self.is_trained(config) else None
            if seconds is not None:
                known.setdefault(alike(config), []).append(seconds)
        if not known:
            return None
        usual = sum(map(sum, known.values())) / sum(map(len, known.values()))
        return sum(fmean(known.get(alike(config), [usual])) for config in missing)

    def trained(self, config: MethodConfig) -> Path:
        """Return the run folder of a trained model; train it if it is not there."""
        place = self.place(config)
        if self.is_trained(config):
            return place
        base = None
        if config.method == "laplace-bridge" and not config.freeze:
            base = self.trained(dataclasses.replace(config, method="softmax"))
        before = {name: value for name, value in _changes(config).items() if name not in _LATER}
        shared = self.folder / "first" / _digest(before)
        with lock_folder(place):
            if shared.exists() and not (place / "first").exists():
                shutil.copytree(shared, place / "first")
            resume = (place / "config.json").exists() or (place / "first").exists()
            train_run(config, place, resume=resume, base=base, say=self.say, say_epoch=self.say_epoch)
            if (place / "first").exists() and not shared.exists():
                shutil.copytree(place / "first", shared)
        return place

    def model(self, config: MethodConfig) -> Any:
        """Return a trained model."""
        from randomset.training.rival_storage import load_model

        return load_model(self.trained(config))

    def data(self, config: MethodConfig) -> tuple[Any, Any, Any]:
        """Return what a model is tested, validated and calibrated on."""
        run = self.trained(config)
        return own_data(run, NetworkInputs(self.model(config), run, strict=False))

    def evaluation(
        self,
        data: str,
        config: MethodConfig,
        *,
        sweeps: bool = False,
        attacks: bool = False,
        twin: MethodConfig | None = None,
    ) -> Evaluation:
        """Measure a model on its test data and on what is unknown to it, unless that was done before."""
        _, unknown = self.scale.setting(data, self.folder / "data")
        if sweeps or attacks:  # which are about known inputs
            unknown = {}
        run = self.trained(config)
        marks = {"unknown": unknown, "sweeps": sweeps, "attacks": attacks}
        samples = self.scale.attacked_samples if attacks else self.scale.changed_samples
        marks |= {"samples": samples, "most": self.scale.unknown_samples}
        place = run / "measured" / _digest(marks)
        if (place / "whole").exists():
            try:
                found = Evaluation.load(place)
                self.reused.setdefault(place, float((place / "whole").read_text(encoding="utf-8")))
                return found
            except (FileFormatError, ValueError):
                pass  # it is measured again
        self.say(f"Measuring {run.name} …")
        self.reused[place] = 0.0  # it is measured now
        started = time.perf_counter()
        model = self.model(config)
        load = NetworkInputs(model, run, strict=False)
        tested, held, calibrating = own_data(run, load)
        most, seed = self.scale.unknown_samples, config.seed
        others = {name: few(load(source, labelled=False), most, seed) for name, source in unknown.items()}
        result = evaluate(
            model,
            tested,
            others,
            validation=held,
            calibration=calibrating,
            classes=model.notes.get("classes"),
            noise=NOISE if sweeps else (),
            rotation=ROTATION if sweeps else (),
            attacks=self.scale.epsilons if attacks else (),
            twin=None if twin is None else self.model(twin),
            samples=samples,
            seed=seed,
        )
        place.mkdir(parents=True, exist_ok=True)
        result.save(place)
        with replacing(place / "whole") as temporary:
            temporary.write_text(f"{time.perf_counter() - started:.1f}", encoding="utf-8")
        return result

    def evaluations(self, data: str, method: str = "rsnn", **changes: Any) -> list[Evaluation]:
        """Measure a method on a data set with every seed."""
        configs = [self.config(data, method, seed, **changes) for seed in self.seeds]
        return [self.evaluation(data, config) for config in configs]


def time_to_go(seconds: float | None) -> str:
    """Write a guess of the time left at the end of a line, nothing if there is none.

    >>> time_to_go(600), time_to_go(20), time_to_go(None)
    (', about 10 min to go', ', about 1 min to go', '')
    """
    return "" if seconds is None else f", about {max(1, round(seconds / 60))} min to go"


_LATER = ("num_sets", "reducer", "alpha", "beta", "hidden", "from_first")
"""What the plain network that comes first does not depend on: runs that differ in it share one."""


def _changes(config: MethodConfig) -> dict[str, Any]:
    """Return what differs from the usual settings: an option that comes later makes no model another one."""
    usual = dataclasses.asdict(MethodConfig())
    return {name: value for name, value in dataclasses.asdict(config).items() if value != usual[name]}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
