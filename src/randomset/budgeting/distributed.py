"""Feature extraction on several devices with Lightning; imported on demand."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor, nn

from randomset.budgeting.features import FeatureProbe

__all__ = ["FeaturePredictor"]


class FeaturePredictor(lightning.LightningModule):
    """Return the features and labels of each batch from `predict_step`."""

    def __init__(self, model: nn.Module, layer: str | None) -> None:
        super().__init__()
        self.model, self.layer = model, layer

    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:  # noqa: D102
        features, labels = FeatureProbe(self.model, self.layer)(batch)
        return {"features": features} | ({} if labels is None else {"labels": torch.as_tensor(labels)})
