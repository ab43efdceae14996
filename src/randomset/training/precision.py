"""Which numbers to compute in: half the bits where the device is made for them, never where it is not."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from randomset.errors import RandomSetWarning

__all__ = ["chosen_precision"]


def chosen_precision(asked: str | None, accelerator: Any) -> str:
    """Return Lightning's name of the precision to train in.

    None takes mixed precision where the device has it: bfloat16 on GPUs and CPUs with native support,
    float16 on older GPUs, float32 on the rest. bfloat16 is refused on a CPU without native support, where it
    is many times slower than float32: a warning says so.
    """
    on_cuda = torch.cuda.is_available() and accelerator in ("auto", "gpu", "cuda")
    if on_cuda:
        native = "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "16-mixed"
        return asked or native
    if accelerator not in ("auto", "cpu") or (accelerator == "auto" and torch.backends.mps.is_available()):
        return asked or "32-true"
    if asked is not None and "bf16" in str(asked) and not cpu_has_bfloat16():
        warnings.warn(
            f"this CPU has no native bfloat16, which makes {asked!r} many times slower than float32; "
            "training goes on in float32",
            RandomSetWarning,
            stacklevel=4,
        )
        return "32-true"
    return asked or ("bf16-mixed" if cpu_has_bfloat16() else "32-true")


def cpu_has_bfloat16() -> bool:
    """Say whether the CPU multiplies bfloat16 itself."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)
