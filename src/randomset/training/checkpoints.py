"""Checkpoints: written whole or not at all, checked before they are trusted, and signals that end in one."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint

from randomset.belief.storage import check_version, replacing
from randomset.errors import FileFormatError, RandomSetError, WriteError
from randomset.training.engine import Engine
from randomset.training.loaders import EpochLoader
from randomset.training.recipe import Recipe

__all__ = ["RunCheckpoints", "Stopped", "checked_checkpoint", "write_history"]

FORMAT, VERSION = "randomset.checkpoint", 1


class Stopped(Exception):
    """Raised inside Lightning's loop after a signal, once the state is saved."""


class RunCheckpoints(Checkpoint):
    """Keeps `last.ckpt`, the one before it, and `best.ckpt`; writes `metrics.csv`; listens to signals.

    Written after every epoch, and within one every `steps` batches or `minutes` minutes where the order of
    the data can be repeated. The best epoch has the highest validation accuracy, and of equals the lowest
    loss.
    """

    def __init__(
        self,
        folder: Path,
        loader: Any,
        *,
        steps: int | None,
        minutes: float,
        resumed: dict[str, Any] | None,
    ) -> None:
        self.folder, self.loader = folder, loader
        self.steps, self.minutes = steps, minutes
        self.resumed = resumed
        self.best: tuple[float, float] | None = None
        self.received: int | None = None
        self.within_epoch = False
        self._written = time.monotonic()
        self._handlers: dict[int, Any] = {}

    # -- when -----------------------------------------------------------------------------------

    def on_train_start(self, trainer: Trainer, engine: Any) -> None:  # noqa: D102
        if self.resumed is not None:
            state = self.resumed["randomset"]
            engine.restore(state, within_epoch=state["position"] > 0)
            self.best = None if state["best"] is None else tuple(state["best"])
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._note_signal)

    def on_train_batch_end(self, trainer: Trainer, engine: Any, *_: Any) -> None:  # noqa: D102
        stop = trainer.strategy.reduce_boolean_decision(self.received is not None, all=False)
        last = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        if last:
            return  # the end of the epoch, after validation, is a better moment
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        due = done % self.steps == 0 if self.steps else self._due(trainer)
        if done % trainer.accumulate_grad_batches:
            return  # a checkpoint holds no gradients: wait until they are used
        if isinstance(self.loader, EpochLoader) and (due or stop):
            self._write(trainer, "last.ckpt", within_epoch=True)
        if stop:
            raise Stopped

    def on_train_epoch_end(self, trainer: Trainer, engine: Any) -> None:  # noqa: D102
        row = engine.history[-1]
        if "val_accuracy" in row or "val_loss" in row:
            score = (row.get("val_accuracy", 0.0), -row.get("val_loss", 0.0))
            if self.best is None or score > self.best:
                self.best = score
                self._write(trainer, "best.ckpt")
        self._write(trainer, "last.ckpt")
        if trainer.is_global_zero:
            write_history(engine.history, self.folder.parent / "metrics.csv")
        stop = trainer.strategy.reduce_boolean_decision(self.received is not None, all=False)
        if stop:  # in the last epoch, too: what follows the training is not wanted either
            raise Stopped

    def on_train_end(self, trainer: Trainer, engine: Any) -> None:  # noqa: D102
        self._restore_handlers()

    def on_exception(self, trainer: Trainer, engine: Any, exception: BaseException) -> None:  # noqa: D102
        self._restore_handlers()

    def _due(self, trainer: Trainer) -> bool:
        late = time.monotonic() - self._written > 60 * self.minutes
        return trainer.strategy.broadcast(late) if trainer.world_size > 1 else late

    def _note_signal(self, number: int, frame: Any) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once
        self.received = number

    def _restore_handlers(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    # -- how ------------------------------------------------------------------------------------

    def _write(self, trainer: Trainer, name: str, *, within_epoch: bool = False) -> None:
        self.within_epoch = within_epoch
        path = self.folder / name
        temporary = self.folder / f".{name}.part"
        try:
            trainer.save_checkpoint(temporary)  # by all processes; one of them writes
            if trainer.is_global_zero:
                if name == "last.ckpt" and path.exists():
                    self._keep_as_previous(path)
                os.replace(temporary, path)
        except OSError as error:
            for part in self.folder.glob(".*.part"):  # it would take the room that is missing
                part.unlink(missing_ok=True)
            raise WriteError("the checkpoint cannot be written", path, error) from error
        self._written = time.monotonic()

    def _keep_as_previous(self, path: Path) -> None:
        previous = self.folder / ".previous.part"
        previous.unlink(missing_ok=True)
        try:
            os.link(path, previous)
        except OSError:  # a file system without links
            shutil.copyfile(path, previous)
        os.replace(previous, self.folder / "previous.ckpt")

    def on_save_checkpoint(self, trainer: Trainer, engine: Any, checkpoint: dict[str, Any]) -> None:
        """Add what Lightning's checkpoint lacks."""
        ours = isinstance(self.loader, EpochLoader)
        checkpoint["randomset"] = {
            "format": FORMAT,
            "version": VERSION,
            "epoch": len(engine.history),
            "position": self.loader.position if ours and self.within_epoch else 0,
            "layout": self.loader.layout if ours else None,
            "best": None if self.best is None else list(self.best),
            **engine.state_for_checkpoint(),
        }


def checked_checkpoint(path: Path, engine: Engine, loader: Any = None) -> dict[str, Any]:
    """Read a checkpoint, without running anything inside; refuse, by name, what is not ours or not whole."""
    if not path.is_file():
        raise FileFormatError(
            "there is no checkpoint to go on from", got=str(path), remedy="Start without resume"
        )
    spare = path.with_name("previous.ckpt")
    remedy = f"The one before it is {spare}: give it to resume" if spare.exists() and spare != path else ""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged file makes torch say
        raise FileFormatError(
            "the checkpoint is not whole, or no checkpoint",
            got=f"{path}: {(str(error) or type(error).__name__).splitlines()[0][:120]}",
            remedy=remedy,
        ) from None
    state = checkpoint.get("randomset") if isinstance(checkpoint, dict) else None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise FileFormatError("this checkpoint was not written by randomset", got=str(path), remedy=remedy)
    check_version(state.get("version"), VERSION, "the checkpoint", path)
    needed = {
        "history",
        "sums",
        "seconds",
        "recipe",
        "seed",
        "trained",
        "epoch",
        "position",
        "layout",
        "best",
    }
    if not needed <= set(state) or not {"state_dict", "optimizer_states", "loops"} <= set(checkpoint):
        raise FileFormatError("the checkpoint lacks some of its parts", got=str(path), remedy=remedy)
    ours, theirs = engine.state_dict(), checkpoint["state_dict"]
    wrong = [name for name in ours if name not in theirs or theirs[name].shape != ours[name].shape]
    wrong += [name for name in theirs if name not in ours]
    if wrong:
        raise FileFormatError(
            "the checkpoint is of another network",
            got=f"{path}, which differs in {len(wrong)} tensors, the first {wrong[0]}",
            remedy="Resume with the network that was being trained",
        )
    if changed := engine.recipe.differences(Recipe.from_dict(state["recipe"])):
        raise RandomSetError(
            "the checkpoint was trained by another recipe",
            got=", ".join(changed),
            remedy="Resume with the old recipe; to train these weights further, call fit with another folder",
        )
    if state["trained"] != engine.state_for_checkpoint()["trained"]:
        raise RandomSetError(
            "other weights are to be trained than before",
            got=f"{len(engine.state_for_checkpoint()['trained'])} tensors",
            expected=f"the {len(state['trained'])} that were trained",
            remedy="Freeze the same parts as before",
        )
    layout = loader.layout if isinstance(loader, EpochLoader) else None
    if loader is not None and layout != state["layout"]:
        raise RandomSetError(
            "the data are not those that the training began with",
            got=str(layout),
            expected=str(state["layout"]),
        )
    if state["seed"] != engine.seed:
        raise RandomSetError("the checkpoint has another seed", got=engine.seed, expected=str(state["seed"]))
    return checkpoint


def write_history(history: list[dict[str, float]], path: Path) -> None:
    """Write the history of epochs as CSV."""
    columns = list(dict.fromkeys(name for row in history for name in row))
    lines = [",".join(columns)]
    for row in history:
        lines.append(",".join(f"{row[name]:.8g}" if name in row else "" for name in columns))
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
