"""Features on several devices through Lightning; imported only when they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from randomset.budgeting.features import FeatureProbe, Part

__all__ = ["FeaturePredictor", "PartWriter"]


class FeaturePredictor(lightning.LightningModule):
    """Gives the features and labels of a batch."""

    def __init__(self, model: nn.Module, layer: str | None) -> None:
        super().__init__()
        self.model, self.layer = model, layer

    def predict_step(self, batch: Any, batch_idx: int) -> Part:  # noqa: D102
        return FeatureProbe(self.model, self.layer)(batch)


class PartWriter(BasePredictionWriter):
    """Writes what one process has seen, and where in the data set it stood."""

    def __init__(self, folder: str) -> None:
        super().__init__("epoch")
        self.folder = Path(folder)

    def write_on_epoch_end(  # noqa: D102
        self, trainer: Any, pl_module: Any, predictions: Any, batch_indices: Any
    ) -> None:
        flat = [i for batch in batch_indices[0] for i in batch]
        tensors = {
            "features": torch.cat([features for features, _ in predictions]),
            "places": torch.tensor(flat),
        }
        if predictions[0][1] is not None:
            tensors["labels"] = torch.as_tensor(np.concatenate([labels for _, labels in predictions]))
        save_file(tensors, self.folder / f"{trainer.global_rank}.safetensors")

    @staticmethod
    def read(folder: Path) -> list[Part]:
        """Return the parts of all processes as one, in the order of the data set."""
        parts = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
        order = torch.cat([part["places"] for part in parts]).argsort()

        def joined(name: str) -> Tensor:
            return torch.cat([part[name] for part in parts])[order]

        return [(joined("features"), joined("labels").numpy() if "labels" in parts[0] else None)]
