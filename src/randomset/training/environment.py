"""Around a training: its loggers, its random numbers, and quiet."""

from __future__ import annotations

import importlib.util
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["epoch_lines", "loggers", "own_random_numbers", "quiet"]


def loggers(folder: Path | None, given: Any) -> Any:
    """Return the user's loggers and, where a run folder and TensorBoard are there, TensorBoard's."""
    found = [] if given in (None, False) else list(given) if isinstance(given, (list, tuple)) else given
    if folder is None or given is False or not isinstance(found, list):
        return found or False
    if importlib.util.find_spec("tensorboard") is not None:
        from lightning.pytorch.loggers import TensorBoardLogger

        found = [*found, TensorBoardLogger(folder, name="tensorboard", version="")]
    return found or False


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Leave the generators of the process as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what Lightning says of hardware, and its advice that does not hold here."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        for message in (
            ".*does not have many workers.*",
            ".*in eval mode at the start of training.*",
            ".*dataloader is not resumable.*",
            ".*smaller than the logging interval.*",
            ".*checkpoint callback.*",
            ".*GPU available but not used.*",
            ".*no `val_dataloader`.*",
            ".*LeafSpec.*is deprecated.*",
            ".*Checkpoint directory.*exists and is not empty.*",
        ):
            warnings.filterwarnings("ignore", message)
        try:
            yield
        finally:
            log.setLevel(level)


def epoch_lines(say: Callable[[str], object]) -> Any:
    """Return a Lightning callback that says one line for each epoch: for log files, where no bar is shown."""
    from lightning import Callback

    class EpochLines(Callback):
        def on_train_epoch_start(self, trainer: Any, engine: Any) -> None:
            self._say(engine.history)

        def on_train_end(self, trainer: Any, engine: Any) -> None:
            self._say(engine.history)

        def _say(self, history: list[dict[str, float]]) -> None:
            if not history:
                return
            row = history[-1]
            text = f"epoch {int(row['epoch'])}: loss {row['loss']:.4f}"
            text += f", validation accuracy {row['val_accuracy']:.2%}" if "val_accuracy" in row else ""
            say(text + f", {row['samples_per_second']:.0f} samples/s")

    return EpochLines()
