"""The door to torchvision and timm: its operators may not fit the torch that it stands beside."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

import torch

from randomset.errors import MissingPackageError, RandomSetError

__all__ = ["before_others", "timm", "torchvision"]


def torchvision() -> Any:
    """Import torchvision; where its operators do not load, declare those that its import asks for.

    A torchvision that was built for CUDA stumbles over `torchvision::nms` beside a torch for the CPU. Models,
    transforms and data sets do not need it.
    """
    try:
        return importlib.import_module("torchvision")
    except ImportError:
        raise MissingPackageError("torchvision", "vision") from None
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise RandomSetError("torchvision cannot be imported", got=str(error).splitlines()[0]) from None
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    for operator in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
    return importlib.import_module("torchvision")


def before_others() -> None:
    """Open the door for libraries that import torchvision themselves: Lightning, torchmetrics, transformers.

    Where torchvision is not installed, or was imported already, nothing is done.
    """
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is not None:
        torchvision()


def timm() -> Any:
    """Import timm, which imports torchvision: behind the same door."""
    torchvision()
    try:
        return importlib.import_module("timm")
    except ImportError:
        raise MissingPackageError("timm", "vision") from None
