"""Wrapping a trained classifier as a random-set classifier, in a run folder."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from randomset._core.checks import listed
from randomset._core.files import check_writable, expanded
from randomset.backbones.inputs import InputSpec, Standardise
from randomset.backbones.registry import check_name, classifier_from_library, default_image_size
from randomset.data.sources import Source
from randomset.data.splits import Parts, resolved, unseen, usual_shares
from randomset.errors import FileFormatError, LabelError, RandomSetError
from randomset.models import Softmax, wrap
from randomset.models import load as load_model
from randomset.models.base import Classifier
from randomset.models.storage import WEIGHTS
from randomset.models.wrapping import check_wrapped_reliability
from randomset.runs.data import TOKENIZER, NetworkInputs
from randomset.runs.training import check_free, cleanup, clock, finish_run, stored_tokenizer
from randomset.training.config import TrainConfig
from randomset.training.preparation import log_pretrained_inputs, spec_for

__all__ = ["wrap_run"]

logger = logging.getLogger(__name__)


def wrap_run(
    base: str | os.PathLike[str],
    out: Path,
    source: str | None = None,
    *,
    reliability: str = "auto",
    weights: str | os.PathLike[str] = "default",
    size: int | None = None,
    label_column: str | None = None,
    text_column: str | None = None,
    strict: bool = False,
    **split: Any,
) -> None:
    """Implement `Run.wrap`, with the same arguments."""
    base = _located(base, out)
    check_wrapped_reliability(reliability)
    with cleanup(out, resume=False):
        model = _classifier(base, source, weights, size, out)
        folder = out if isinstance(base, str) else base  # the one with the tokenizer
        load = NetworkInputs(model, folder, strict, text_column)
        columns = {"label_column": label_column, "text_column": text_column}
        load.config = {**load.config, **{name: text for name, text in columns.items() if text is not None}}
        config = _config(load.config, source, reliability, split)
        split_file = None if isinstance(base, str) else base / "split.json"
        own = config.source == load.config.get("source") and (folder / "split.json").exists()
        if own and split:
            raise RandomSetError(
                "the classifier's run keeps its own split",
                got=", ".join(f"{name} {value}" for name, value in split.items()),
                remedy="Omit these options, or name other data",
            )
        data = _aligned(load(config.source, "train"), model)
        parts = Parts.match(folder / "split.json", data)[0] if own else _new_parts(split_file, data, config)
        check_writable(out / "config.json")
        config.save(out / "config.json")
        parts.save(out / "split.json", data)
        if folder != out and (folder / TOKENIZER).is_dir():
            shutil.copytree(folder / TOKENIZER, out / TOKENIZER, dirs_exist_ok=True)
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


def _located(given: str | os.PathLike[str], out: Path) -> Path | str:
    """Return the folder or file of a classifier, or the name of a library's; check that `out` is free."""
    base = expanded(given)
    if base.name == WEIGHTS and base.is_file():
        base = base.parent
    named = str(given).partition(":")[0] in ("timm", "torchvision", "hf")
    if not base.exists() and not named:
        raise FileFormatError(
            "no such classifier",
            got=str(base),
            expected="the run folder of a softmax network, or timm:MODEL, torchvision:MODEL or hf:MODEL",
        )
    if base.is_file() and base.suffix != ".safetensors":
        raise FileFormatError(
            "a file of weights does not identify its network",
            got=str(base),
            expected="a run folder, or a network by name",
            remedy=f"Name the network: randomset wrap torchvision:MODEL SOURCE --weights {base}",
        )
    check_free(out)
    if not base.exists():
        return str(given)
    return f"hf:{base}" if _is_hugging_face(base) else base


def _classifier(
    base: Path | str, source: str | None, weights: str | os.PathLike[str], size: int | None, out: Path
) -> Classifier:
    """Load the classifier of a folder, or build another library's by name."""
    if isinstance(base, str):
        if source is None:
            raise RandomSetError("no source was given", got=base, expected="labelled images or texts")
        return _from_library(base, weights, size, out)
    if weights != "default" or size is not None:
        raise RandomSetError(
            "weights and size apply to a network given by name",
            got=f"{base} with {f'weights {weights}' if weights != 'default' else f'size {size}'}",
            expected="torchvision:MODEL, timm:MODEL or hf:MODEL",
        )
    return load_model(base)


def _is_hugging_face(folder: Path) -> bool:
    """Return whether a folder is a Hugging Face model, not a run."""
    try:
        return "model_type" in json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _from_library(name: str, weights: str | os.PathLike[str], size: int | None, out: Path) -> Softmax:
    """Build a trained classifier of another library as a softmax network; store its tokenizer."""
    check_name(name)
    size = default_image_size(name) if size is None else size
    backbone, layer, classes = classifier_from_library(name, image_size=size, weights=weights)
    inputs, outputs = backbone.pretrained_inputs, layer.out_features
    if outputs < 2:
        raise RandomSetError("the classifier has a single output", got=name, expected="one for each class")
    preprocess = None
    if inputs is None:
        length = stored_tokenizer(name.partition(":")[2], 256, out)[1]
        spec = InputSpec((length,), tokens=True)
    else:
        log_pretrained_inputs(backbone)
        preprocess = Standardise(inputs.mean, inputs.std)
        spec = InputSpec((len(inputs.mean), inputs.size, inputs.size), largest=1.0)
    model = Softmax(backbone, classes or outputs, preprocess=preprocess)
    model.layer = layer
    config = {"source": "", "backbone": name, "weights": str(weights), "size": size}
    model.notes = {**dataclasses.replace(spec, classes=classes).to_notes(), "config": config}
    return model.eval()


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
    """Return data whose labels are numbered as the classifier's outputs."""
    if model.known_classes:
        return data.aligned(model.known_classes)
    if len(data.classes) != model.num_classes:
        raise LabelError(
            "the classifier and the data have different numbers of classes",
            got=f"{len(data.classes)} in {data.name}: {listed(data.classes, 5)}",
            expected=f"{model.num_classes}, the outputs of the classifier",
        )
    return data


def _new_parts(split: Path | None, data: Source, config: TrainConfig) -> Parts:
    """Split data that are not the classifier's own, holding out no sample that it was trained on."""
    rows = torch.arange(len(data))
    if split is not None and split.exists():
        numbered = dataclasses.replace(data, rows=tuple(rows.tolist()))
        rows = torch.tensor(unseen(split, numbered).rows)
    else:
        logger.warning(
            f"{'A network given by name' if split is None else split.parent} does not record which samples "
            "the classifier was trained on: make sure that the samples held out here are not among them."
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
