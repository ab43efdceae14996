"""Prediction on several devices with Lightning; imported only when needed."""

from __future__ import annotations

from typing import Any

import lightning
import numpy as np
import torch
from torch import Tensor, nn

from randomset.evaluation.predictor import Feed, Predictor, digests_of

__all__ = ["BatchPredictor"]


class BatchPredictor(lightning.LightningModule):
    """Returns the content of a batch's prediction as named tensors."""

    def __init__(self, predictor: Predictor, feed: Feed) -> None:
        super().__init__()
        self.predictor, self.feed = predictor, feed
        # Registered, so that it moves to the device of each process.
        self.network = predictor.model if isinstance(predictor.model, nn.Module) else None

    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:  # noqa: D102
        inputs, labels = self.feed(batch)
        prediction = self.predictor(inputs)
        named = {"probabilities": prediction.probabilities, "digests": digests_of(inputs)}
        named |= {f"scores.{name}": score for name, score in prediction.scores.items()}
        optional = {name: getattr(prediction, name) for name in ("lower", "upper", "negative")}
        named |= {name: values for name, values in optional.items() if values is not None}
        if labels is not None:
            labels = labels.cpu() if isinstance(labels, Tensor) else np.asarray(labels)
            named["labels"] = torch.as_tensor(labels)
        return {name: tensor.contiguous() for name, tensor in named.items()}
