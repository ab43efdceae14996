"""What may stand in one table: runs of the same settings and the same data, and data of one kind."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from randomset.cli.checks import as_place
from randomset.errors import FileFormatError, RandomSetError, ShapeError

if TYPE_CHECKING:
    from randomset.training.config import TrainConfig

__all__ = ["check_data", "check_same", "contents_of", "is_whole"]


def check_same(run: Path, config: TrainConfig) -> None:
    """Refuse to mix runs of other settings into a comparison."""
    from randomset.training.config import TrainConfig

    if not (run / "config.json").exists():
        return
    stored, wanted = (dataclasses.asdict(each) for each in (TrainConfig.load(run), config))
    if config.backbone == "auto":
        wanted["backbone"] = stored["backbone"]
    if config.weights != "none" and config.size is None:
        wanted["size"] = stored["size"]  # what the weights are used to
    other = [
        f"{name} {stored[name]} instead of {wanted[name]}" for name in wanted if stored[name] != wanted[name]
    ]
    if other:
        raise FileFormatError(
            "the folder holds a run with other settings",
            got=f"{run}: {', '.join(other)}",
            remedy="Choose another folder with --out, or the settings of before",
        )


def check_data(run: Path, mark: str) -> None:
    """Refuse to go on with runs of other data, before anything is trained."""
    try:
        contents = json.loads((run / "split.json").read_text(encoding="utf-8")).get("contents")
    except (OSError, ValueError, AttributeError, RecursionError):
        return  # there is none yet, or its reader will say what is wrong
    if contents not in (None, mark):
        raise FileFormatError(
            "the data are others than those of a run in the folder",
            got=str(run),
            remedy="Bring the old data back, or choose another folder with --out",
        )


def is_whole(folder: Path, seeds: int) -> bool:
    """Say whether a method was trained with every seed."""
    return all((folder / f"seed-{seed}" / "test.json").exists() for seed in range(seeds))


def contents_of(config: TrainConfig, unknown: dict[str, str]) -> dict[str, str]:
    """Load all data once before the work, so that what cannot be used is said now; return their marks."""
    from randomset.data.sources import load_source
    from randomset.data.splits import fingerprint

    columns: dict[str, Any] = {"label": config.label_column, "text": config.text_column}
    size = None if config.size is None else (config.size, config.size)
    data = load_source(config.source, size=size, **columns)
    if data.labels.dim() > 1:
        raise RandomSetError(
            "methods are compared on data with one class for each sample",
            got=f"set-valued labels of {data.name}",
            remedy="randomset train takes them",
        )
    marks = {"": fingerprint(data)}
    for name, source in unknown.items():
        if name in ("test", "validation", "calibration"):
            raise RandomSetError("this name means something else", got=f"--ood {name}=…", expected="another")
        if as_place(source) == config.source and config.test:
            raise RandomSetError("the known data cannot be the unknown ones", got=f"--ood {name}={source}")
        more: dict[str, Any] = {"columns": data.columns} if data.kind == "features" else {}
        other = load_source(source, "test", labelled=False, size=size, **columns, **more)
        alike = other.kind == data.kind
        if alike and data.kind == "features":
            alike = other.inputs.shape[1:] == data.inputs.shape[1:]
        if not alike:
            raise ShapeError(
                "the unknown data are of another kind than the known ones",
                got=repr(other),
                expected=f"what {data!r} holds",
            )
        marks[name] = fingerprint(other)
    return marks
