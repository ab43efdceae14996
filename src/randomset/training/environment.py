"""The environment of a training run: loggers, random state, precision, and the verbosity of Lightning."""

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

from randomset.errors import RandomSetWarning

__all__ = ["chosen_precision", "loggers", "preserve_random_state", "quiet_lightning"]


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


def chosen_precision(asked: str | None, accelerator: Any) -> str:
    """Return the precision to train in, by its name in Lightning.

    None selects mixed precision where the device supports it: bfloat16 on GPUs and CPUs with native support,
    float16 on older GPUs, and float32 otherwise. On a CPU without native bfloat16, where it is many times
    slower than float32, a request for bfloat16 falls back to float32 with a warning.
    """
    on_cuda = torch.cuda.is_available() and accelerator in ("auto", "gpu", "cuda")
    if on_cuda:
        native = "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "16-mixed"
        return asked or native
    if accelerator not in ("auto", "cpu") or (accelerator == "auto" and torch.backends.mps.is_available()):
        return asked or "32-true"
    if asked is not None and "bf16" in str(asked) and not cpu_has_bfloat16():
        warnings.warn(
            f"this CPU has no native bfloat16 support, so {asked!r} would be many times slower than float32; "
            "training in float32 instead",
            RandomSetWarning,
            stacklevel=4,
        )
        return "32-true"
    return asked or ("bf16-mixed" if cpu_has_bfloat16() else "32-true")


def cpu_has_bfloat16() -> bool:
    """Return whether the CPU supports bfloat16 natively."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)
