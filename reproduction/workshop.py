"""Models of the paper's experiments, each trained once, and what was measured on them, each once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from randomset._core.files import replacing
from randomset.backbones.registry import check_name
from randomset.data.catalogue import KNOWN, files_of
from randomset.data.splits import usual_shares
from randomset.errors import FileFormatError
from randomset.evaluation import Evaluation
from randomset.runs import HeldOut, Run, RunStore
from randomset.runs.run import evaluate_run
from randomset.runs.store import base_method, time_to_go
from randomset.training.config import TrainConfig
from reproduction.scales import Scale

__all__ = ["Workshop", "time_to_go"]

logger = logging.getLogger("randomset.reproduction")


class Workshop(RunStore):
    """Trains and measures at a scale; runs are stored by their configuration.

    Args:
        scale: one of `SCALES`.
        folder: where models and measurements are stored; what is there is not made again.
        seeds: how many seeds; None means as many as the scale has.
    """

    def __init__(self, scale: Scale, folder: Path, seeds: int | None = None) -> None:
        super().__init__(folder)
        self.scale = scale
        self.seeds = range(scale.seeds if seeds is None else seeds)
        self.reused: dict[Path, float] = {}
        """The seconds that stored measurements took when they were made, by folder."""

    def config(self, data: str, method: str = "rsnn", seed: int = 0, **changes: Any) -> TrainConfig:
        """Return the settings for training on one of the paper's data sets."""
        options, _ = self.scale.setting(data, self.folder / "data")
        if method != "rsnn":  # the others have no such settings
            options = {
                name: value
                for name, value in options.items()
                if name not in ("num_sets", "hidden", "reducer")
            }
        options |= usual_shares(options["source"])
        # The paper trains two networks, and discounts nothing.
        fixed = {"method": method, "seed": seed, "reliability": "none", "from_scratch": True}
        return TrainConfig(**{**options, **fixed, **changes})

    def run(self, config: TrainConfig) -> Run:
        """Return the run of a configuration, trained or not."""
        digest = _digest(_changes(config))
        name = f"{Path(config.source).stem}-{config.method}-{config.seed}-{digest}"
        return Run(self.folder / "models" / name)

    def place(self, config: TrainConfig) -> Path:
        """Return the run folder of a configuration."""
        return self.run(config).folder

    def title(self, config: TrainConfig) -> str:
        """Return the name of a run in messages."""
        return f"{Path(config.source).stem}, {super().title(config)}"

    def check(self, data: Iterable[str], configs: Sequence[TrainConfig]) -> None:
        """Reject, before any training, data sets and networks that are missing."""
        wanted = dict.fromkeys((config.source, split) for config in configs for split in ("train", "test"))
        for name in data:
            _, unknown = self.scale.setting(name, self.folder / "data")
            wanted |= dict.fromkeys((source, "test") for source in unknown.values())
        for source, split in wanted:
            if source in KNOWN:
                files_of(source, split)
        for backbone in {config.backbone for config in configs if ":" in config.backbone}:
            check_name(backbone)

    def _train(self, config: TrainConfig, folder: Path, base: Path | None) -> None:
        """Train a run; the plain network that comes first is shared with runs that have the same."""
        before = {name: value for name, value in _changes(config).items() if name not in _LATER}
        shared, own = self.folder / "first" / _digest(before), folder / "first"
        if shared.exists() and not own.exists():
            shutil.copytree(shared, own)
        super()._train(config, folder, base)
        if own.exists() and not shared.exists():
            shutil.copytree(own, shared)

    def base(self, config: TrainConfig) -> Run | None:
        """Return the trained run that a method builds on, if it builds on one; train it if it is missing."""
        method = base_method(config)
        return None if method is None else self.trained(dataclasses.replace(config, method=method))

    def model(self, config: TrainConfig) -> Any:
        """Return a trained model."""
        return self.trained(config).model

    def data(self, config: TrainConfig) -> HeldOut:
        """Return the test, validation and calibration data of a model."""
        return self.trained(config).data()

    def evaluation(
        self,
        data: str,
        config: TrainConfig,
        *,
        sweeps: bool = False,
        attacks: bool = False,
        surrogate: TrainConfig | None = None,
    ) -> Evaluation:
        """Measure a model on its test data and on unknown data, unless the same was measured before."""
        _, unknown = self.scale.setting(data, self.folder / "data")
        if sweeps or attacks:  # these are about known inputs
            unknown = {}
        run = self.trained(config)
        marks = {"unknown": unknown, "sweeps": sweeps, "attacks": attacks}
        samples = self.scale.attacked_samples if attacks else self.scale.changed_samples
        marks |= {"samples": samples, "most": self.scale.unknown_samples}
        place = run.folder / "measured" / _digest(marks)
        if (place / "whole").exists():
            try:
                result = Evaluation.load(place)
                self.reused.setdefault(place, float((place / "whole").read_text(encoding="utf-8")))
                return result
            except (FileFormatError, ValueError):
                pass  # it is measured again
        logger.info(f"Measuring {run.folder.name} …")
        self.reused[place] = 0.0
        started = time.perf_counter()
        result = evaluate_run(
            run,
            ood=unknown,
            ood_samples=self.scale.unknown_samples,
            sweeps=sweeps,
            attacks=self.scale.epsilons if attacks else (),
            surrogate=None if surrogate is None else self.model(surrogate),
            samples=samples,
            timing=False,
            seed=config.seed,
            out=place,
        ).result
        with replacing(place / "whole") as temporary:
            temporary.write_text(f"{time.perf_counter() - started:.1f}", encoding="utf-8")
        return result

    def evaluations(self, data: str, method: str = "rsnn", **changes: Any) -> list[Evaluation]:
        """Measure a method on a data set with every seed."""
        configs = [self.config(data, method, seed, **changes) for seed in self.seeds]
        return [self.evaluation(data, config) for config in configs]


_LATER = ("num_sets", "reducer", "alpha", "beta", "hidden")
"""Settings that the plain network does not depend on: runs that differ only in these share one."""


def _changes(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that are not the defaults, so that a new option changes no stored digest."""
    usual = dataclasses.asdict(TrainConfig(reliability="none", from_scratch=True))
    return {name: value for name, value in dataclasses.asdict(config).items() if value != usual[name]}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
