"""The environment of a training run: loggers, random state, and the verbosity of Lightning."""

from __future__ import annotations

import importlib.util
import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["loggers", "preserve_random_state", "quiet_lightning"]


def loggers(folder: Path | None, given: Any) -> Any:
    """Return the user's loggers, and TensorBoard's if there is a run folder and TensorBoard is installed."""
    chosen = [] if given in (None, False) else list(given) if isinstance(given, (list, tuple)) else given
    if folder is None or given is False or not isinstance(chosen, list):
        return chosen or False
    if importlib.util.find_spec("tensorboard") is not None:
        from lightning.pytorch.loggers import TensorBoardLogger

        chosen = [*chosen, TensorBoardLogger(folder, name="tensorboard", version="")]
    return chosen or False


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the global random state afterwards."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's hardware notes, and advice that does not apply here."""
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
