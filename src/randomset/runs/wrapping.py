"""Wrapping of a trained classifier as a random-set classifier, stored in a run folder."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from randomset._core.files import check_writable
from randomset.backbones.inputs import InputSpec
from randomset.data.sources import Source
from randomset.data.splits import Parts, resolved, unseen, usual_shares
from randomset.errors import FileFormatError, RandomSetError
from randomset.models import load as load_model
from randomset.models import wrap
from randomset.models.base import Classifier
from randomset.models.reliability import check_reliability
from randomset.runs.data import TOKENIZER, NetworkInputs
from randomset.runs.training import cleanup, clock, finish_run
from randomset.training.config import TrainConfig
from randomset.training.preparation import spec_for

__all__ = ["wrap_run"]

logger = logging.getLogger(__name__)


def wrap_run(
    base: Path,
    out: Path,
    source: str | None = None,
    *,
    reliability: str = "auto",
    label_column: str | None = None,
    text_column: str | None = None,
    strict: bool = False,
    **split: Any,
) -> None:
    """Implement `Run.wrap`, with the same arguments."""
    _check_folders(base, out)
    if check_reliability(reliability) == "none":
        raise RandomSetError(
            "a wrapped classifier needs a reliability", got="none", expected="auto, neighbours or gaussians"
        )
    model = load_model(base)
    load = NetworkInputs(model, base, strict, text_column)
    columns = {"label_column": label_column, "text_column": text_column}
    load.config = {**load.config, **{name: text for name, text in columns.items() if text is not None}}
    config = _config(load.config, source, reliability, split)
    own = config.source == load.config.get("source") and (base / "split.json").exists()
    if own and split:
        raise RandomSetError(
            "the classifier's run keeps its own split",
            got=", ".join(f"{name} {value}" for name, value in split.items()),
            remedy="Omit these options, or name other data",
        )
    data = _aligned(load(config.source, "train"), model)
    parts = Parts.match(base / "split.json", data)[0] if own else _new_parts(base, data, config)
    check_writable(out / "config.json")
    with cleanup(out, resume=False):
        config.save(out / "config.json")
        parts.save(out / "split.json", data)
        if (base / TOKENIZER).is_dir():
            shutil.copytree(base / TOKENIZER, out / TOKENIZER, dirs_exist_ok=True)
        separate = parts.test is None
        tested = _aligned(load(config.source, "test"), model) if separate else parts.test_data(data)
        logger.info(
            f"{data.name}: {len(parts.train)} samples to take features from, {len(parts.validation)} to "
            f"validate, {len(parts.calibration)} to calibrate conformal sets, {len(tested)} to test on."
        )
        with clock(out, resume=False) as seconds:
            seconds.append(float(model.notes.get("seconds", 0.0)))
            train, val = (_Batches(data, rows, model.input_spec) for rows in (parts.train, parts.validation))
            network = wrap(model, train, val, classes=data.classes, reliability=reliability)
    if model.input_spec is None:
        network.notes = spec_for(network.preprocess, InputSpec.of(data.inputs, data.classes)).to_notes()
    network.notes["seconds"] = sum(seconds)
    finish_run(network, config, data, parts, tested, out)


def _check_folders(base: Path, out: Path) -> None:
    if ":" in str(base) and not base.exists():
        raise RandomSetError(
            "a backbone returns features, not the logits of your classes",
            got=str(base),
            expected="the run folder of a softmax network",
            remedy=f"Train one first: randomset train SOURCE --method softmax --backbone {base}; or wrap a "
            "classifier in Python: randomset.wrap(classifier, train, val)",
        )
    if not base.exists():
        raise FileFormatError(
            "no such classifier", got=str(base), expected="the run folder of a softmax network"
        )
    if (out / "config.json").exists():
        raise FileFormatError(
            "the folder already contains a run",
            got=str(out),
            remedy="Choose another folder with --out",
        )


def _config(base: dict[str, Any], source: str | None, reliability: str, split: dict[str, Any]) -> TrainConfig:
    """Return the settings of the classifier's run, for another method and perhaps another source."""
    name = base.get("source", "") if source is None else resolved(source)
    if not name:
        raise RandomSetError(
            "no source was given",
            expected="labelled data, since the classifier's folder does not name those it was trained on",
        )
    known = {field.name for field in dataclasses.fields(TrainConfig)}
    fields = {key: value for key, value in base.items() if key in known}
    if name != base.get("source"):
        fields |= {**usual_shares(name), "seed": 0, **split}
    fields |= {"source": name, "method": "wrapped", "reliability": reliability}
    return TrainConfig(**{**fields, "hidden": ()}).checked()


def _aligned(data: Source, model: Classifier) -> Source:
    """Number the labels as the classifier does."""
    return data.aligned(model.known_classes) if model.known_classes else data


def _new_parts(base: Path, data: Source, config: TrainConfig) -> Parts:
    """Split data that are not the classifier's own; none that it was trained on is held out."""
    split, rows = base / "split.json", torch.arange(len(data))
    if split.exists():
        numbered = dataclasses.replace(data, rows=tuple(rows.tolist()))
        rows = torch.tensor(unseen(split, numbered).rows)
    else:
        logger.warning(
            f"{base} does not record which samples the classifier was trained on: the samples that are held "
            "out here must not be among them."
        )
    shares = (config.validation, config.calibration, config.test)
    fresh = data if len(rows) == len(data) else data.part(rows)
    parts = Parts.of(fresh, config.source, *shares, config.seed)
    held = {
        name: None if (part := getattr(parts, name)) is None else rows[part]
        for name in ("validation", "calibration", "test")
    }
    free = torch.ones(len(data), dtype=torch.bool)
    free[torch.cat([part for part in held.values() if part is not None])] = False
    return Parts(config.source, free.nonzero()[:, 0], **held)  # type: ignore[arg-type]


class _Batches:
    """Labelled samples of a source in the form that a model takes, batch by batch."""

    def __init__(self, data: Source, rows: Tensor, spec: InputSpec | None) -> None:
        self.data, self.rows, self.spec = data, rows, spec

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in self.rows.split(256):
            inputs = self.data.inputs[rows]
            yield inputs if self.spec is None else self.spec.fit(inputs)[0], self.data.labels[rows]
