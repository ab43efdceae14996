"""Import torchvision and timm, even where torchvision was built for CUDA and torch for the CPU."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

import torch

from randomset._core.packages import optional_package
from randomset.errors import RandomSetError, first_line

__all__ = ["import_lightning", "import_torchvision_first", "timm", "torchvision"]


def torchvision() -> Any:
    """Import torchvision; if its compiled operators do not load, declare those that the import requires.

    A CUDA build of torchvision fails on `torchvision::nms` beside a CPU build of torch. Models, transforms
    and data sets do not need that operator.
    """
    try:
        with optional_package("torchvision", "vision"):
            return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise RandomSetError("torchvision cannot be imported", got=first_line(error)) from None
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    for operator in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
    return importlib.import_module("torchvision")


def import_torchvision_first() -> None:
    """Import torchvision before libraries that do so themselves: Lightning, torchmetrics, transformers.

    Does nothing if torchvision is not installed or already imported.
    """
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is not None:
        torchvision()


def import_lightning() -> Any:
    """Import Lightning, which imports torchvision."""
    import_torchvision_first()
    with optional_package("lightning", "train"):
        return importlib.import_module("lightning")


def timm() -> Any:
    """Import timm, which imports torchvision."""
    torchvision()
    with optional_package("timm", "vision"):
        return importlib.import_module("timm")
