"""Reports of training, and resuming from checkpoints, which are read without executing code.

A damaged checkpoint falls back to the previous one.
"""

from __future__ import annotations

import os
import pickletools
import warnings
import zipfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from randomset._core.checks import is_whole
from randomset._core.files import check_version, write_text
from randomset._core.packages import optional_package
from randomset.errors import FileFormatError, RandomSetError, RandomSetWarning, first_line
from randomset.models.reliability_fitting import ReliabilityReport
from randomset.models.temperature import CalibrationReport
from randomset.training.loaders import EpochLoader
from randomset.training.muon import is_convolution
from randomset.training.recipe import Recipe

if TYPE_CHECKING:
    from pandas import DataFrame

    from randomset.training.engine import Engine

__all__ = [
    "FORMAT",
    "VERSION",
    "FitReport",
    "TrainingStopped",
    "checked_checkpoint",
    "find_checkpoint",
    "joined_history",
    "write_history",
]


@dataclass(frozen=True)
class FitReport:
    """Result of a training run: one history row per epoch, and reports of what was fitted afterwards."""

    history: list[dict[str, float]]
    folder: Path | None = None
    calibration: CalibrationReport | None = None
    planned: int = 0
    """Number of planned epochs; fewer are run if a callback stops early."""
    kept: Literal["last", "best"] = "last"
    """Which epoch's weights were kept."""
    reliability: ReliabilityReport | None = None

    @property
    def last(self) -> dict[str, float]:
        """Row of the last epoch."""
        return self.history[-1]

    @property
    def best(self) -> dict[str, float]:
        """Row of the epoch with the highest validation accuracy; ties are broken by the lowest loss."""
        phase = self.last.get("phase")
        rows = [row for row in self.history if row.get("phase") == phase]
        return max(rows, key=lambda row: (row.get("val_accuracy", 0.0), -row.get("val_loss", row["loss"])))

    def to_frame(self) -> DataFrame:
        """Return the history as a pandas DataFrame."""
        with optional_package("pandas", "frames"):
            import pandas
        return pandas.DataFrame(self.history)

    def __str__(self) -> str:
        row = self.best if self.kept == "best" else self.last
        done = int(self.last["epoch"])
        text = f"{done} epoch{'' if done == 1 else 's'}"
        text += f" of {self.planned}, stopped early" if done < self.planned else ""
        text += f", kept epoch {int(row['epoch'])}" if self.kept == "best" else ""
        text += f", loss {row['loss']:.4f}"
        if "val_accuracy" in row:
            text += f", validation accuracy {row['val_accuracy']:.2%}, ECE {row['val_ece']:.3f}"
        if "val_negative_mass" in row:
            text += f", {row['val_negative_mass']:.1%} of the raw mass negative"
        fitted = (self.calibration, self.reliability)
        return "\n".join([text, *(str(report) for report in fitted if report is not None)])


def joined_history(
    earlier: list[dict[str, float]], history: list[dict[str, float]]
) -> list[dict[str, float]]:
    """Join the histories of two phases of one training run; epochs and steps are counted continuously.

    >>> joined_history([{"epoch": 1, "step": 10}], [{"epoch": 1, "step": 10}])
    [{'phase': 1, 'epoch': 1, 'step': 10}, {'phase': 2, 'epoch': 2, 'step': 20}]
    """
    if not earlier:
        return history
    last = earlier[-1]
    later = [
        {**row, "epoch": row["epoch"] + last["epoch"], "step": row["step"] + last["step"]} for row in history
    ]
    return [{"phase": 1, **row} for row in earlier] + [{"phase": 2, **row} for row in later]


def write_history(history: list[dict[str, float]], path: Path) -> None:
    """Write the training history as CSV, one row per epoch."""
    columns = list(dict.fromkeys(name for row in history for name in row))
    lines = [",".join(columns)]
    for row in history:
        lines.append(",".join(f"{row[name]:.8g}" if name in row else "" for name in columns))
    write_text("\n".join(lines) + "\n", path)


class TrainingStopped(KeyboardInterrupt):
    """Training was stopped by Ctrl-C or SIGTERM; the message explains how to resume."""

    def __init__(self, message: str, number: int, checkpoint: Path | None) -> None:
        super().__init__(message)
        self.signal, self.checkpoint = number, checkpoint


# -- resuming --------------------------------------------------------------------------------------


FORMAT, VERSION = "randomset.checkpoint", 1

_COUNTS = {"ready", "started", "processed", "completed", "_batches_that_stepped"}
_Content = dict[str, Any]


class _Damaged(FileFormatError):
    """A missing or damaged checkpoint, for which the previous one can be used instead."""


def find_checkpoint(
    folder: Path, resume: bool | str | os.PathLike[str], engine: Engine, loader: Any
) -> tuple[Path, _Content] | None:
    """Return the path and content of the checkpoint to resume from; None to start from the beginning.

    Uses the last checkpoint of the folder, or the previous one with a warning if the last one is damaged or
    missing.
    """
    if not resume:
        return None
    if resume is not True:
        path = Path(resume).expanduser()
        return path, checked_checkpoint(path, engine, loader)
    last, previous = folder / "last.ckpt", folder / "previous.ckpt"
    if not last.exists() and not previous.exists():
        return None
    try:
        content, path = _read(last), last
    except _Damaged as error:
        try:
            content, path = _read(previous), previous
        except _Damaged as second_error:
            raise FileFormatError(f"{error}; {second_error}. Start again in another folder") from None
        fallback = f"the previous checkpoint, {path}, after epoch {content['randomset']['epoch']}"
        warnings.warn(f"{error}. Resuming from {fallback}", RandomSetWarning, stacklevel=4)
    return path, _matched(content, path, engine, loader)


def checked_checkpoint(path: Path, engine: Engine, loader: Any = None) -> _Content:
    """Read a checkpoint without executing code from it; raise if it is damaged or does not match."""
    try:
        content = _read(path)
    except _Damaged as error:
        raise FileFormatError(f"{error}. Use another checkpoint, or start without resume") from None
    return _matched(content, path, engine, loader)


# -- integrity ------------------------------------------------------------------------------------


def _read(path: Path) -> _Content:
    """Read a checkpoint and check its structure, independently of the network."""
    if not path.is_file():
        raise _Damaged("no checkpoint to resume from", got=str(path))
    try:
        _check_archive(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises all kinds of errors on a damaged file
        raise _Damaged(
            "the checkpoint is damaged or not a checkpoint",
            got=f"{path}: {first_line(error)[:120]}",
        ) from None
    state = content.get("randomset") if isinstance(content, dict) else None
    form = state.get("format") if isinstance(state, dict) else None
    if not isinstance(state, dict) or not isinstance(form, str) or form != FORMAT:
        raise _Damaged("this checkpoint was not written by randomset", got=str(path))
    version = state.get("version")
    check_version(version if isinstance(version, (int, str)) else None, VERSION, "the checkpoint", path)
    try:
        wrong = [name for name, right in _PARTS.items() if not right(content[name])]
        wrong += [name for name, right in _STATE.items() if not right(state[name])]
    except Exception as error:  # something is missing or has the wrong type
        wrong = [f"{error!r:.60}"]
    if wrong:
        raise _Damaged("the checkpoint is incomplete or invalid", got=f"{path}: {wrong[0]}")
    return content


def _check_archive(path: Path) -> None:
    """Reject archives that torch does not write: damaged, compressed, or larger than the file.

    torch itself does not verify the checksums.
    """
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        names = [part.filename.casefold() for part in parts]
        whole = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
        if not whole or sum(part.file_size for part in parts) > path.stat().st_size:
            raise ValueError("the archive is compressed")
        pickles = [name for name in archive.namelist() if name.casefold().endswith("data.pkl")]
        if len(set(names)) < len(names) or len(pickles) != 1:
            raise ValueError("the archive has duplicate entries")
        if (broken := archive.testzip()) is not None:
            raise ValueError(f"entry {broken} is damaged")
        for _, given, _ in pickletools.genops(archive.read(pickles[0])):
            if isinstance(given, str) and given.endswith(" bytearray"):  # could allocate any amount of memory
                raise ValueError("the archive contains unexpected objects")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _are_numbers(value: Any, *needed: str) -> bool:
    """Return whether this is a dictionary of numbers with all needed keys."""
    return (
        type(value) is dict
        and set(needed) <= set(value)
        and all(type(name) is str and _is_number(number) for name, number in value.items())
    )


def _are_counts(loops: Any) -> bool:
    """Return whether all batch and epoch counters are valid."""
    return all(
        _are_counts(part)
        if isinstance(part, dict)
        else is_whole(part, 0)
        if name in _COUNTS
        else name != "is_last_batch" or type(part) is bool
        for name, part in loops.items()
    )


_PARTS: dict[str, Any] = {
    "state_dict": lambda part: all(isinstance(tensor, Tensor) for tensor in part.values()),
    "optimizer_states": lambda part: len(part) == 1,
    "lr_schedulers": lambda part: len(part) == 1,
    "loops": lambda part: bool(part["fit_loop"]) and _are_counts(part),
    "epoch": lambda part: is_whole(part, 0),
    "global_step": lambda part: is_whole(part, 0),
}
_STATE: dict[str, Any] = {
    "history": lambda rows: (
        type(rows) is list and all(_are_numbers(r, "epoch", "step", "loss") for r in rows)
    ),
    "sums": _are_numbers,
    "seconds": _is_number,
    "recipe": lambda fields: type(fields) is dict,
    "seed": lambda seed: type(seed) is int,
    "trained": lambda names: type(names) is list and all(type(name) is str for name in names),
    "epoch": lambda epoch: is_whole(epoch, 0),
    "position": lambda position: is_whole(position, 0),
    "layout": lambda layout: layout is None or _are_numbers(layout, "batches"),
    "best": lambda best: best is None or (len(best) == 2 and all(map(_is_number, best))),
}


# -- match with this training run -----------------------------------------------------------------


def _matched(checkpoint: _Content, path: Path, engine: Engine, loader: Any) -> _Content:
    """Return the checkpoint if it matches the network, recipe, seed and data; raise otherwise."""
    state = checkpoint["randomset"]
    try:
        recipe = Recipe.from_dict(state["recipe"])
    except (TypeError, ValueError) as error:
        raise FileFormatError("cannot read the recipe of the checkpoint", got=f"{path}: {error}") from None
    if changed := engine.recipe.differences(recipe):
        raise RandomSetError(
            "the checkpoint was trained with a different recipe",
            got=", ".join(changed),
            remedy="Resume with the original recipe; to train these weights further, use another folder",
        )
    ours, theirs = engine.state_dict(), checkpoint["state_dict"]
    wrong = [
        name
        for name in ours
        if name not in theirs
        or (theirs[name].shape, theirs[name].dtype) != (ours[name].shape, ours[name].dtype)
    ]
    wrong += [name for name in theirs if name not in ours]
    if wrong:
        raise FileFormatError(
            "the checkpoint belongs to a different network",
            got=f"{path}, which differs in {len(wrong)} tensors, the first {wrong[0]!s:.80}",
            remedy="Resume with the original network",
        )
    if state["trained"] != engine.state_for_checkpoint()["trained"]:
        raise RandomSetError(
            "the set of trainable weights has changed",
            got=f"{len(engine.state_for_checkpoint()['trained'])} trainable tensors",
            expected=f"the {len(state['trained'])} that were trained",
            remedy="Freeze the same parts as before",
        )
    layout = loader.layout if isinstance(loader, EpochLoader) else None
    if loader is not None and layout != state["layout"]:
        raise RandomSetError(
            "the training data differ from those of the checkpoint",
            got=str(layout),
            expected=str(state["layout"]),
        )
    if state["seed"] != engine.seed:
        raise RandomSetError(
            "the seed differs from that of the checkpoint", got=engine.seed, expected=str(state["seed"])
        )
    if len(state["history"]) > engine.recipe.epochs:
        raise RandomSetError(
            "the checkpoint was trained for more epochs than requested",
            got=f"epochs={engine.recipe.epochs}",
            expected=f"{len(state['history'])} or more",
        )
    try:
        consistent = _has_position(state, layout) and _has_optimizer_state(checkpoint, engine)
    except Exception:  # something is missing or has the wrong type
        consistent = False
    if not consistent:
        raise FileFormatError("the checkpoint is inconsistent", got=str(path))
    return checkpoint


def _has_position(state: _Content, layout: dict[str, int] | None) -> bool:
    """Return whether the position exists in the data."""
    position = state["position"]
    inside = position == 0 or (layout is not None and position < layout["batches"])
    return inside and state["epoch"] == len(state["history"]) and (not position or "samples" in state["sums"])


def _has_optimizer_state(checkpoint: _Content, engine: Engine) -> bool:
    """Return whether the optimizer and scheduler states are valid: torch loads them unchecked."""
    optimizer = engine.recipe.optimizer_for([engine.module, engine.loss])
    scheduler = engine.recipe.scheduler_for(optimizer, 1)["scheduler"]
    ours, (theirs,) = optimizer.state_dict(), checkpoint["optimizer_states"]
    for own, stored in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        if not _is_number(stored["lr"]) or any(stored[k] != own[k] for k in own if k in stored and k != "lr"):
            return False
    parameters = dict(enumerate(chain.from_iterable(group["params"] for group in optimizer.param_groups)))
    for place, moments in theirs["state"].items():
        if set(moments) != _moments(engine.recipe.optimizer, parameters[place]):
            return False
        for name, tensor in moments.items():
            shape = () if name == "step" else parameters[place].shape
            if not tensor.is_floating_point() or tensor.shape != shape:
                return False
    own, (stored,) = scheduler.state_dict(), checkpoint["lr_schedulers"]
    methods = {name for name in dir(scheduler) if callable(getattr(scheduler, name))} | {"optimizer"}
    alike = all(_are_alike(own[name], stored[name]) for name in own if name in stored)
    return alike and not methods & set(stored)


def _moments(optimizer: str, parameter: Tensor) -> set[str]:
    """Return the names of what an optimizer stores for a parameter."""
    if optimizer == "sgd" or (optimizer == "muon" and is_convolution(parameter)):
        return {"momentum_buffer"}
    return {"step", "exp_avg", "exp_avg_sq"}


def _are_alike(own: Any, stored: Any) -> bool:
    """Return whether two scheduler values have the same type and structure."""
    if isinstance(own, list):
        return type(stored) is list and len(own) == len(stored) and all(map(_are_alike, own, stored))
    if _is_number(own):
        return _is_number(stored)
    return type(own) is type(stored) and (own == stored or type(own) is bool)
