"""Prediction on several devices through Lightning; imported on demand, because Lightning is optional."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

__all__ = ["PartWriter", "PredictFunction", "in_processes"]


class PredictFunction(lightning.LightningModule):
    """Predicts with a picklable function of a model and a batch, which returns named tensors."""

    def __init__(self, function: Callable[[nn.Module, Any], dict[str, Tensor]], model: nn.Module) -> None:
        super().__init__()
        self.function, self.model = function, model

    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        return self.function(self.model, batch)


class PartWriter(BasePredictionWriter):
    """Writes the predictions of one process as named tensors, with their indices in the data set."""

    def __init__(self, folder: str) -> None:
        super().__init__("epoch")
        self.folder = Path(folder)

    def write_on_epoch_end(self, trainer: Any, pl_module: Any, predictions: Any, batch_indices: Any) -> None:
        indices = [index for batch in batch_indices[0] for index in batch]
        tensors = {name: torch.cat([part[name] for part in predictions]) for name in predictions[0]}
        tensors["indices"] = torch.tensor(indices)
        atexit.register(_leave)
        save_file(tensors, self.folder / f"{trainer.global_rank}.safetensors")

    @staticmethod
    def read(folder: Path) -> dict[str, Tensor]:
        """Merge the parts of all processes: each sample once, in the order of the data set."""
        parts = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
        indices = torch.cat([part["indices"] for part in parts]).tolist()
        first = {index: row for row, index in reversed(list(enumerate(indices)))}
        order = torch.tensor([first[index] for index in sorted(first)])
        return {
            name: torch.cat([part[name] for part in parts])[order] for name in parts[0] if name != "indices"
        }


def _leave() -> None:
    """Shut down communication before the process exits, which its threads would abort otherwise."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def in_processes(
    function: Callable[[nn.Module, Any], dict[str, Tensor]],
    model: nn.Module,
    batches: Any,
    devices: int,
    **options: Any,
) -> dict[str, Tensor]:
    """Predict with a copy of a model on every device, each on its share of the data; merge the results."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cuda" if any(p.is_cuda for p in model.parameters()) else "cpu",
            devices=devices,
            strategy="ddp_spawn",
            callbacks=[PartWriter(folder)],
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            **options,
        )
        trainer.predict(PredictFunction(function, model), batches, return_predictions=False)
        return PartWriter.read(Path(folder))
