"""Choice of the training precision: 16-bit mixed precision only on devices with native support."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from randomset.errors import RandomSetWarning

__all__ = ["chosen_precision"]


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
