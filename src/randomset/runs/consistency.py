"""Checks that runs are comparable: the same settings and data, and unknown data of the same kind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from randomset.data.digests import fingerprint
from randomset.data.sources import load_source
from randomset.errors import FileFormatError, RandomSetError, ShapeError
from randomset.runs.data import resolved
from randomset.runs.run import Run
from randomset.training.config import TrainConfig

__all__ = ["check_data", "check_settings", "fingerprints"]


def check_settings(run: Run, config: TrainConfig) -> None:
    """Reject a stored run whose settings differ from a configuration."""
    if not (run.folder / "config.json").exists():
        return
    stored, wanted = (dataclasses.asdict(each) for each in (run.config, config))
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
    """Reject a stored run whose training data had another fingerprint."""
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
        if resolved(source) == config.source and config.test:
            raise RandomSetError("the unknown data are the training data", got=f"--ood {name}={source}")
        more: dict[str, Any] = {"columns": data.columns} if data.kind == "features" else {}
        unknown = load_source(source, "test", labelled=False, size=size, **columns, **more)
        alike = unknown.kind == data.kind
        if alike and data.kind == "features":
            alike = unknown.inputs.shape[1:] == data.inputs.shape[1:]
        if not alike:
            raise ShapeError(
                "the unknown data are of another kind than the training data",
                got=repr(unknown),
                expected=f"the kind of {data!r}",
            )
        contents[name] = fingerprint(unknown)
    return contents
