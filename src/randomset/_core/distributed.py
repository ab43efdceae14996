"""Predictions on several devices through Lightning; imported only when they are asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from safetensors.torch import load_file, save_file
from torch import Tensor

__all__ = ["PartWriter", "in_processes"]


class PartWriter(BasePredictionWriter):
    """Writes what one process has seen, tensors by name, and where in the data set it stood."""

    def __init__(self, folder: str) -> None:
        super().__init__("epoch")
        self.folder = Path(folder)

    def write_on_epoch_end(self, trainer: Any, pl_module: Any, predictions: Any, batch_indices: Any) -> None:
        flat = [i for batch in batch_indices[0] for i in batch]
        tensors = {name: torch.cat([part[name] for part in predictions]) for name in predictions[0]}
        tensors["places"] = torch.tensor(flat)
        save_file(tensors, self.folder / f"{trainer.global_rank}.safetensors")

    @staticmethod
    def read(folder: Path) -> dict[str, Tensor]:
        """Return the parts of all processes as one, in the order of the data set, each sample once."""
        parts = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
        places = torch.cat([part["places"] for part in parts]).tolist()
        first = {place: row for row, place in reversed(list(enumerate(places)))}
        order = torch.tensor([first[place] for place in sorted(first)])
        return {
            name: torch.cat([part[name] for part in parts])[order] for name in parts[0] if name != "places"
        }


def in_processes(
    module: lightning.LightningModule, batches: Any, devices: int, **options: Any
) -> dict[str, Tensor]:
    """Let Lightning run a copy of a module on every device, each on its part of the data; join the parts."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cuda" if any(p.is_cuda for p in module.parameters()) else "cpu",
            devices=devices,
            strategy="ddp_spawn",
            callbacks=[PartWriter(folder)],
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            **options,
        )
        trainer.predict(module, batches, return_predictions=False)
        return PartWriter.read(Path(folder))
