"""The Lightning module that trains anything: it sees a module, a loss and a recipe."""

from __future__ import annotations

import time
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric
from torchmetrics.classification import BinaryCalibrationError

from randomset.budgeting.batches import call_with, split_batch
from randomset.errors import LabelError
from randomset.nn.classifiers import feature_tensor
from randomset.training.augmentation import shifted_and_flipped
from randomset.training.loaders import seed_from
from randomset.training.recipe import Recipe

__all__ = ["Engine"]

IGNORED = -100  # the class index that torch's losses and ours leave out by default


class Engine(lightning.LightningModule):
    """Trains a module with a loss by a recipe, and keeps the history of epochs.

    What a module may offer beside `forward`: `probabilities(outputs)`, its class probabilities, without which
    the softmax of its outputs is taken; and `diagnostics(outputs)`, more numbers for each validation sample.
    Random numbers of a step depend on seed, step and process alone.
    """

    def __init__(self, module: nn.Module, loss: nn.Module, recipe: Recipe, seed: int) -> None:
        super().__init__()
        self.module, self.loss, self.recipe, self.seed = module, loss, recipe, seed
        self.history: list[dict[str, float]] = []
        self.sums: dict[str, Tensor] = {}
        self.seconds = 0.0
        self._clock = 0.0
        self.means = nn.ModuleDict()
        self.calibration_error = BinaryCalibrationError(n_bins=15, norm="l1")

    # -- training -------------------------------------------------------------------------------

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        self._seed_step()
        inputs, labels, weight = _parts(batch)
        if (self.recipe.shift or self.recipe.flip) and isinstance(inputs, Tensor) and inputs.dim() == 4:
            inputs = shifted_and_flipped(inputs, self.recipe.shift, self.recipe.flip)
        outputs = feature_tensor(call_with(self.module, inputs))
        value = self.loss(outputs, labels) if weight is None else self.loss(outputs, labels, weight)
        terms = {"loss": value.detach(), **getattr(self.loss, "terms", {})}
        for name, term in {**terms, "samples": torch.ones_like(value)}.items():
            self.sums[name] = self.sums.get(name, 0) + len(outputs) * term.detach().double()
        if self.trainer.progress_bar_callback is not None:
            self.log("loss", value.detach(), prog_bar=True, logger=False)
        return value

    def _seed_step(self) -> None:
        # Not torch.manual_seed: on a machine without a GPU it spends milliseconds on noting it for later.
        seed = seed_from(self.seed, self.global_step, self.global_rank)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def on_train_epoch_start(self) -> None:  # noqa: D102
        self.sums, self.seconds = {}, 0.0

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:  # noqa: D102
        self._clock = time.perf_counter()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: D102
        self.seconds += time.perf_counter() - self._clock

    def on_train_epoch_end(self) -> None:
        """Write the epoch's row of the history, and give it to the loggers."""
        names = [name for name in self.sums if name != "samples"]
        totals = torch.stack([self.sums[name].to(self.device) for name in (*names, "samples")])
        totals = self.trainer.strategy.reduce(totals, reduce_op="sum")
        row = {name: (totals[i] / totals[-1]).item() for i, name in enumerate(names)}
        measured = self.trainer.callback_metrics
        row |= {name: value.item() for name, value in measured.items() if name.startswith("val_")}
        row["learning_rate"] = self.last_rate
        row["samples_per_second"] = totals[-1].item() / max(self.seconds, 1e-9)
        self.history.append({"epoch": self.current_epoch + 1, "step": self.global_step, **row})
        for logger in self.loggers:
            logger.log_metrics(row, step=self.global_step)

    @property
    def last_rate(self) -> float:
        """The learning rate of the step that was just taken."""
        return self._rate

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Note the learning rate on the way."""
        self._rate = float(optimizer.param_groups[0]["lr"])
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

    def configure_optimizers(self) -> Any:  # noqa: D102
        optimizer = self.recipe.optimizer_for([self.module, self.loss])
        steps = int(self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": self.recipe.scheduler_for(optimizer, steps)}

    # -- validation -----------------------------------------------------------------------------

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Measure a batch: loss, accuracy, likelihood, calibration, and what the module itself tells."""
        inputs, labels, _ = _parts(batch)
        outputs = feature_tensor(call_with(self.module, inputs))
        self._note("val_loss", self.loss(outputs, labels).expand(len(outputs)))
        if hasattr(self.module, "diagnostics"):
            for name, values in self.module.diagnostics(outputs).items():  # type: ignore[operator]
                self._note(f"val_{name}", values)
        found = self._probabilities(outputs)
        hit = _probability_of_label(found, labels)
        if hit is None:
            return
        confidence, predicted = found.max(1)
        right = _is_right(predicted, labels)
        used = torch.ones_like(right) if labels.dim() > 1 else labels != IGNORED
        self._note("val_accuracy", right[used].float())
        self._note("val_nll", -hit[used].clamp_min(1e-12).log())
        self.calibration_error.update(confidence[used].clamp(0, 1), right[used].int())

    def on_validation_epoch_end(self) -> None:  # noqa: D102
        for name, mean in self.means.items():
            self.log(name, mean.compute(), prog_bar=name == "val_accuracy", logger=False)  # type: ignore[operator]
            mean.reset()  # type: ignore[operator]
        if self.calibration_error.update_called:
            self.log("val_ece", self.calibration_error.compute(), logger=False)
        self.calibration_error.reset()

    def _note(self, name: str, values: Tensor) -> None:
        if name not in self.means:
            self.means[name] = MeanMetric().to(self.device)
        self.means[name].update(values.detach())  # type: ignore[operator]

    def _probabilities(self, outputs: Tensor) -> Tensor:
        if hasattr(self.module, "probabilities"):
            return self.module.probabilities(outputs)  # type: ignore[operator]
        return outputs.float().softmax(-1)

    # -- checkpoints ----------------------------------------------------------------------------

    def state_for_checkpoint(self) -> dict[str, Any]:
        """Return what a checkpoint holds beside Lightning's own state."""
        return {
            "history": self.history,
            "sums": {name: float(value) for name, value in self.sums.items()},
            "seconds": self.seconds,
            "recipe": self.recipe.as_dict(),
            "seed": self.seed,
        }

    def restore(self, state: dict[str, Any], *, within_epoch: bool) -> None:
        """Take up what a checkpoint held."""
        self.history = list(state["history"])
        if within_epoch:  # Lightning does not announce an epoch again that has begun
            self.sums = {
                name: torch.tensor(value, dtype=torch.double) for name, value in state["sums"].items()
            }
            self.seconds = state["seconds"]


def _parts(batch: Any) -> tuple[Any, Any, Tensor | None]:
    """Separate inputs, labels and weights of a batch."""
    weight = None
    if isinstance(batch, (tuple, list)) and len(batch) == 3:
        *batch, weight = batch
    inputs, labels = split_batch(batch)
    if labels is None:
        raise LabelError(
            "the data give no labels",
            got=f"a batch of type {type(batch).__name__}",
            expected='(inputs, labels), (inputs, labels, weights), or a mapping with "labels"',
        )
    return inputs, labels, weight


def _probability_of_label(probabilities: Tensor, labels: Any) -> Tensor | None:
    """Return how probable each label is; of a set-valued one, the sum over its classes."""
    if not isinstance(labels, Tensor):
        return None
    if labels.dim() == 1:
        return probabilities.gather(1, labels.clamp_min(0)[:, None]).squeeze(1)
    if labels.shape[1] != probabilities.shape[1]:
        return None
    return (probabilities * labels).sum(1)


def _is_right(predicted: Tensor, labels: Tensor) -> Tensor:
    if labels.dim() == 1:
        return predicted == labels
    if labels.dtype == torch.bool:
        return labels.gather(1, predicted[:, None]).squeeze(1)
    return predicted == labels.argmax(1)
