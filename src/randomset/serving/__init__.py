"""Deployment of trained networks: export, and an HTTP service."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from randomset.serving.export import Deployed, export_onnx, export_torch

__all__ = ["Deployed", "export_onnx", "export_torch"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from randomset.serving import export  # slow, and not needed by the service

    return getattr(export, name)
