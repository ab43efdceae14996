"""The Lightning module that trains a network."""

from __future__ import annotations

import logging
import math
import time
from contextlib import nullcontext
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torchmetrics import MeanMetric

from randomset._core.batches import as_floating, call_with, feature_tensor, split_batch
from randomset.backbones.inputs import InputSpec
from randomset.errors import LabelError, RandomSetError, ShapeError
from randomset.models.prediction import NUM_BINS, calibration_gaps
from randomset.training.augmentation import SHIFT, augmented, mixed
from randomset.training.balance import weights_by_class
from randomset.training.loaders import seed_everything, seed_from
from randomset.training.recipe import Recipe

__all__ = ["Engine"]

epochs_logger = logging.getLogger("randomset.training.epochs")


class Engine(lightning.LightningModule):
    """Trains a module with a loss and a recipe, and records a history of epochs.

    A module may define `probabilities(outputs)`, which returns class probabilities (by default the softmax of
    its outputs), and `diagnostics(outputs)`, which returns further metrics per validation sample. The random
    numbers of a step depend only on the seed, the step and the process. With `recipe.ema`, validation uses
    the averaged weights, and `adopt_average` copies them into the module.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        module: nn.Module,
        loss: nn.Module,
        recipe: Recipe,
        seed: int,
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.module, self.loss, self.recipe, self.seed = module, loss, recipe, seed
        self.average = None if recipe.ema is None else _average_of(module, recipe.ema)
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.history: list[dict[str, float]] = []
        self.earlier: list[dict[str, float]] = []
        """The history of an earlier phase of the training."""
        self.sums: dict[str, Tensor] = {}
        self.measured: dict[str, float] = {}
        self.seconds = 0.0
        self._clock = self._rate = 0.0
        self._begun = False
        self.first_loss: Tensor | None = None
        """Loss of the first batch, before the first update."""
        self.input_spec: InputSpec | None = None
        """The form of the first batch of inputs."""
        self.ignored = getattr(loss, "ignore_index", -100)
        self.means = nn.ModuleDict()
        self.gaps = torch.zeros(NUM_BINS + 1, dtype=torch.double)
        """Calibration gaps of the current validation epoch, followed by the number of samples."""

    # -- training -------------------------------------------------------------------------------

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        self._seed(self.current_epoch, batch_idx, self.global_rank)
        inputs, labels, weight = self._parts(batch)
        if self.input_spec is None and isinstance(inputs, Tensor):
            self.input_spec = InputSpec.of(inputs)
        inputs, others, shares = self._augmented(inputs)
        returned = call_with(self.module, inputs)
        outputs = feature_tensor(returned)
        if not getattr(self.loss, "takes_pairs", False) or not isinstance(returned, tuple):
            returned = outputs
        if others is not None and not isinstance(labels, Tensor):
            raise LabelError("mixup needs labels in a tensor", got=type(labels).__name__)
        if others is not None:  # a mixture has the mass λ on its own label, and 1 − λ on the other one
            returned = tuple(map(_twice, returned)) if isinstance(returned, tuple) else _twice(returned)
            labels = torch.cat((labels, labels[others]))
            both = torch.cat((shares, 1 - shares))
            weight = both if weight is None else both * torch.cat((weight, weight[others]))
        if self.class_weights is not None:
            by_class = weights_by_class(labels, self.class_weights)
            weight = by_class if weight is None else weight * by_class
        labels = self._smoothed(labels, outputs)
        value = self.loss(returned, labels) if weight is None else self.loss(returned, labels, weight)
        self.first_loss = value.detach() if self.first_loss is None else self.first_loss
        terms = {"loss": value.detach(), **getattr(self.loss, "terms", {})}
        for name, term in {**terms, "samples": torch.ones_like(value)}.items():
            self.sums[name] = self.sums.get(name, 0) + len(outputs) * term.detach().double()
        if self.trainer.progress_bar_callback is not None:
            self.log("loss", value.detach(), prog_bar=True, logger=False)
        return value

    def _augmented(self, inputs: Any) -> tuple[Any, Tensor | None, Tensor]:
        """Return augmented inputs; of mixtures, also the second sample and the share of the first."""
        names, none = self.recipe.augmentations, torch.empty(0)
        images = isinstance(inputs, Tensor) and inputs.dim() == 4
        unsuited = not images and (names - {"mixup"} if isinstance(inputs, Tensor) else names)
        if unsuited and self.recipe.augment is not None:
            raise ShapeError(
                "these inputs cannot be augmented",
                got=f"{'+'.join(sorted(unsuited))} for inputs of "
                + (f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__),
                expected="images (batch × channels × height × width); for features, only mixup",
            )
        if images and names:
            inputs = augmented(inputs, names, self.recipe.shift or SHIFT)
        return mixed(inputs) if "mixup" in names else (inputs, None, none)

    def _smoothed(self, labels: Any, outputs: Tensor) -> Any:
        """Replace class indices by class probabilities if the recipe smooths labels."""
        share = self.recipe.label_smoothing
        if not share or not isinstance(labels, Tensor) or labels.dim() != 1:
            return labels
        if (labels == self.ignored).any():
            raise LabelError(
                "ignored labels cannot be smoothed",
                got=f"the label {self.ignored}",
                remedy="Omit these samples, or use a recipe with label_smoothing=0",
            )
        count = getattr(self.module, "num_classes", outputs.shape[-1])
        return (1 - share) * nn.functional.one_hot(labels.long(), count).float() + share / count

    def _seed(self, *place: int) -> None:
        """Seed the generators from the position in the training run."""
        # torch.manual_seed takes milliseconds on a machine without a GPU, since it defers the CUDA seed.
        seed = seed_from(self.seed, *place)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def on_train_epoch_start(self) -> None:
        """Reset the sums; the order of a user's data loader depends on the seed set here."""
        self.sums, self.seconds = {}, 0.0
        if self._begun:  # the first iterator already exists; `fit` set its seed
            seed_everything(seed_from(self.seed, self.current_epoch))
        self._begun = True

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:  # noqa: D102
        self._clock = time.perf_counter()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: D102
        self.seconds += time.perf_counter() - self._clock

    def on_train_epoch_end(self) -> None:
        """Append the epoch's row to the history and log it."""
        if not self.sums:
            raise ShapeError("no training batches", got="an empty epoch", expected="at least one batch")
        names = [name for name in self.sums if name != "samples"]
        totals = torch.stack([self.sums[name].to(self.device) for name in (*names, "samples")])
        totals = self.trainer.strategy.reduce(totals, reduce_op="sum")
        row = {name: (totals[i] / totals[-1]).item() for i, name in enumerate(names)}
        if not math.isfinite(row["loss"]):
            raise RandomSetError(
                "training diverged",
                got=f"a loss of {row['loss']} in epoch {self.current_epoch + 1}",
                remedy="Lower the learning rate, or check the data for NaN",
            )
        row |= self.measured
        self.measured = {}
        row["learning_rate"] = self._rate
        row["samples_per_second"] = totals[-1].item() / max(self.seconds, 1e-9)
        self.history.append({"epoch": self.current_epoch + 1, "step": self.global_step, **row})
        for logger in self.loggers:
            logger.log_metrics(row, step=self.global_step)
        if self.trainer.is_global_zero:
            number = len(self.earlier) + self.current_epoch + 1
            text = f"epoch {number}: loss {row['loss']:.4f}"
            text += f", validation accuracy {row['val_accuracy']:.2%}" if "val_accuracy" in row else ""
            epochs_logger.info(f"{text}, {row['samples_per_second']:.0f} samples/s")

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Record the learning rate."""
        self._rate = float(optimizer.param_groups[0]["lr"])
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if self.average is not None:
            self.average.update_parameters(self.module)

    def adopt_average(self) -> None:
        """Copy the averaged weights and buffers, if any, into the module."""
        if self.average is None:
            return
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for buffer in self.average.module.buffers():  # each process has BatchNorm statistics of its own
                torch.distributed.broadcast(buffer, 0)
        self.module.load_state_dict(self.average.module.state_dict())

    def configure_optimizers(self) -> Any:  # noqa: D102
        optimizer = self.recipe.optimizer_for([self.module, self.loss])
        steps = self.trainer.estimated_stepping_batches
        steps = int(steps) if math.isfinite(steps) else -1
        if steps <= 0 and self.recipe.schedule in ("one-cycle", "triangular", "cosine"):
            raise RandomSetError(
                "this schedule needs the total number of steps",
                got=f"{self.recipe.schedule} and data without a length",
                remedy='Pass max_steps=…, or a Recipe with schedule="constant" or "steps"',
            )
        return {"optimizer": optimizer, "lr_scheduler": self.recipe.scheduler_for(optimizer, steps)}

    # -- validation -----------------------------------------------------------------------------

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Update loss, accuracy, likelihood, calibration error and the module's own diagnostics.

        On a CPU this runs in float32, as predictions do, regardless of the training precision.
        """
        inputs, labels, _ = self._parts(batch)
        exact = torch.autocast("cpu", enabled=False) if self.device.type == "cpu" else nullcontext()
        with exact:
            trained = self.module if self.average is None else self.average.module
            outputs = feature_tensor(call_with(trained, inputs))
        self._note("val_loss", self.loss(outputs, labels).expand(len(outputs)))
        if hasattr(self.module, "diagnostics"):
            for name, values in self.module.diagnostics(outputs).items():  # type: ignore[operator]
                self._note(f"val_{name}", values)
        probabilities = self._probabilities(outputs)
        likelihood = _probability_of_label(probabilities, labels, self.ignored)
        if likelihood is None:
            return
        confidence, predicted = probabilities.max(1)
        correct = _is_correct(predicted, labels)
        used = torch.ones_like(correct) if labels.dim() > 1 else labels != self.ignored
        self._note("val_accuracy", correct[used].float())
        self._note("val_nll", -likelihood[used].clamp_min(1e-12).log())
        gaps = calibration_gaps(confidence[used], correct[used])
        self.gaps = self.gaps.to(gaps.device) + torch.cat((gaps, gaps.new_tensor([int(used.sum())])))

    def on_validation_epoch_end(self) -> None:  # noqa: D102
        self.measured = {name: mean.compute().item() for name, mean in self.means.items()}  # type: ignore[operator]
        for mean in self.means.values():
            mean.reset()  # type: ignore[operator]
        gaps = self.trainer.strategy.reduce(self.gaps.to(self.device), reduce_op="sum")
        if gaps[-1]:
            self.measured["val_ece"] = (gaps[:-1].abs().sum() / gaps[-1]).item()
        self.gaps = torch.zeros_like(self.gaps)
        for name, value in self.measured.items():  # for callbacks such as early stopping
            self.log(name, value, prog_bar=name == "val_accuracy", logger=False)

    def _note(self, name: str, values: Tensor) -> None:
        if name not in self.means:
            self.means[name] = MeanMetric().to(self.device)
        self.means[name].update(values.detach())  # type: ignore[operator]

    def _probabilities(self, outputs: Tensor) -> Tensor:
        if hasattr(self.module, "probabilities"):
            return self.module.probabilities(outputs)  # type: ignore[operator]
        return outputs.float().softmax(-1)

    def _parts(self, batch: Any) -> tuple[Any, Any, Tensor | None]:
        """Split a batch into inputs, labels and weights; cast floating-point inputs to the module's dtype."""
        weight = None
        if isinstance(batch, (tuple, list)) and len(batch) == 3:
            *batch, weight = batch
        inputs, labels = split_batch(batch)
        if labels is None:
            raise LabelError(
                "training data must have labels",
                got=f"a batch of type {type(batch).__name__}",
                expected='(inputs, labels), (inputs, labels, weights), or a mapping with "labels"',
            )
        dtype = next((p.dtype for p in self.module.parameters() if p.is_floating_point()), torch.float32)
        return as_floating(inputs, dtype), labels, weight

    # -- checkpoints ----------------------------------------------------------------------------

    def state_for_checkpoint(self) -> dict[str, Any]:
        """Return the state to save in addition to Lightning's."""
        return {
            "history": self.history,
            "sums": {name: float(value) for name, value in self.sums.items()},
            "seconds": self.seconds,
            "recipe": self.recipe.as_dict(),
            "seed": self.seed,
            "trained": [name for name, p in self.named_parameters() if p.requires_grad],
        }

    def restore(self, state: dict[str, Any], *, within_epoch: bool) -> None:
        """Restore the state from a checkpoint."""
        self.history = list(state["history"])
        if within_epoch:  # Lightning does not call on_train_epoch_start again within an epoch
            self.sums = {
                name: torch.tensor(value, dtype=torch.double) for name, value in state["sums"].items()
            }
            self.seconds = state["seconds"]


def _average_of(module: nn.Module, decay: float) -> AveragedModel:
    """Return an exponential moving average of a module's weights and buffers."""

    @torch.no_grad()
    def update(averaged: Any, current: Any, steps: Any) -> None:
        if not averaged[0].is_floating_point():  # BatchNorm's number of batches
            for old, new in zip(averaged, current, strict=True):
                old.copy_(new)
            return
        number = int(steps)
        torch._foreach_lerp_(averaged, current, 1 - min(decay, (1 + number) / (10 + number)))

    return AveragedModel(module, multi_avg_fn=update, use_buffers=True).requires_grad_(False)


def _twice(outputs: Tensor) -> Tensor:
    return torch.cat((outputs, outputs))


def _probability_of_label(probabilities: Tensor, labels: Any, ignored: int) -> Tensor | None:
    """Return the probability of each label; for set-valued labels, the sum over its classes."""
    if not isinstance(labels, Tensor):
        return None
    if labels.dim() == 1:
        return probabilities.gather(1, labels.where(labels != ignored, 0)[:, None].long()).squeeze(1)
    if labels.shape[1] != probabilities.shape[1]:
        return None
    return (probabilities * labels).sum(1)


def _is_correct(predicted: Tensor, labels: Tensor) -> Tensor:
    if labels.dim() == 1:
        return predicted == labels
    if labels.dtype == torch.bool:
        return labels.gather(1, predicted[:, None]).squeeze(1)
    return predicted == labels.argmax(1)
