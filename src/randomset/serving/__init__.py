"""Trained networks outside of the training code: export and the HTTP service."""

from randomset.serving.export import Deployed, export_onnx, export_torch

__all__ = ["Deployed", "export_onnx", "export_torch"]
