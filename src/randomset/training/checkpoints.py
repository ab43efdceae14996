"""The callback that writes checkpoints and handles signals."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint

from randomset._core.files import put_in_place
from randomset.errors import WriteError
from randomset.training.loaders import EpochLoader
from randomset.training.resuming import FORMAT, VERSION, write_history

__all__ = ["RunCheckpoints", "Stopped"]


class Stopped(Exception):
    """Raised in Lightning's loop after a signal, once the checkpoint is written."""


class RunCheckpoints(Checkpoint):
    """Writes `last.ckpt`, `previous.ckpt`, `best.ckpt` and `metrics.csv`, and handles signals.

    Checkpoints are written after every epoch. If the order of the data is reproducible, they are also
    written within an epoch, every `steps` batches or `minutes` minutes. The best epoch has the highest
    validation accuracy; ties are broken by the lowest loss.
    """

    def __init__(
        self,
        folder: Path,
        loader: Any,
        *,
        steps: int | None,
        minutes: float,
        resumed: dict[str, Any] | None,
        from_previous: bool = False,
    ) -> None:
        self.folder, self.loader = folder, loader
        self.steps, self.minutes = steps, minutes
        self.resumed = resumed
        self.begun = False
        self._from_previous = from_previous
        self.best: tuple[float, float] | None = None
        self.received: int | None = None
        self.within_epoch = False
        self._written = time.monotonic()
        self._handlers: dict[int, Any] = {}

    # -- hooks ----------------------------------------------------------------------------------

    def on_train_start(self, trainer: Trainer, engine: Any) -> None:  # noqa: D102
        if (state := self.resumed) is not None:
            engine.restore(state, within_epoch=state["position"] > 0)
            self.best = None if state["best"] is None else tuple(state["best"])
        self.begun = True
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._note_signal)

    def on_train_batch_end(self, trainer: Trainer, engine: Any, *_: Any) -> None:  # noqa: D102
        stop = trainer.strategy.reduce_boolean_decision(self.received is not None, all=False)
        if trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            return  # the end of the epoch, after validation, is handled below
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        due = done % self.steps == 0 if self.steps else self._due(trainer)
        if done % trainer.accumulate_grad_batches:
            return  # checkpoints do not store gradients: wait for the optimizer step
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
        if trainer.strategy.reduce_boolean_decision(self.received is not None, all=False):
            raise Stopped  # also in the last epoch: skip everything after training, too

    def on_train_end(self, trainer: Trainer, engine: Any) -> None:  # noqa: D102
        self._restore_handlers()

    def on_exception(self, trainer: Trainer, engine: Any, exception: BaseException) -> None:  # noqa: D102
        self._restore_handlers()

    def _due(self, trainer: Trainer) -> bool:
        late = time.monotonic() - self._written > 60 * self.minutes
        return trainer.strategy.broadcast(late) if trainer.world_size > 1 else late

    def _note_signal(self, number: int, frame: Any) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # second Ctrl-C: stop immediately
        self.received = number

    def _restore_handlers(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    # -- writing --------------------------------------------------------------------------------

    def _write(self, trainer: Trainer, name: str, *, within_epoch: bool = False) -> None:
        self.within_epoch = within_epoch
        path = self.folder / name
        temporary = self.folder / f".{name}.part"
        try:
            trainer.save_checkpoint(temporary)  # called by all processes; one of them writes
            if trainer.is_global_zero:
                if name == "last.ckpt":
                    if path.exists() and not self._from_previous:  # otherwise last.ckpt is the damaged one
                        self._keep_as_previous(path)
                    self._from_previous = False
                put_in_place(temporary, path)
        except OSError as error:
            for part in self.folder.glob(".*.part"):  # free the disk space
                part.unlink(missing_ok=True)
            raise WriteError("cannot write the checkpoint", path, error) from error
        self._written = time.monotonic()

    def _keep_as_previous(self, path: Path) -> None:
        previous = self.folder / ".previous.part"
        previous.unlink(missing_ok=True)
        try:
            os.link(path, previous)
        except OSError:  # the file system does not support hard links
            shutil.copyfile(path, previous)
        os.replace(previous, self.folder / "previous.ckpt")  # the content is already on disk: no fsync needed

    def on_save_checkpoint(self, trainer: Trainer, engine: Any, checkpoint: dict[str, Any]) -> None:
        """Add our state to Lightning's checkpoint."""
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
