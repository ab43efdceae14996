"""Classifier: the base class of random-set networks and baselines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.batches import (
    as_array,
    as_floating,
    call_with,
    cut_into_batches,
    evaluating,
    feature_tensor,
    flat_features,
    inputs_alone,
    moved,
    progress_bar,
)
from randomset.backbones.base import width_of
from randomset.backbones.inputs import InputSpec
from randomset.belief.random_set import RandomSet
from randomset.errors import RandomSetError, ShapeError, first_line
from randomset.models.cross_entropy import CrossEntropy
from randomset.models.prediction import Prediction

if TYPE_CHECKING:
    from randomset.models.storage import Builder
    from randomset.models.temperature import CalibrationReport
    from randomset.models.training_job import TrainingJob

__all__ = ["Classifier", "LogProbabilities", "Objective"]

_C = TypeVar("_C", bound="Classifier")
Objective = Any
"""(inputs, labels) → one value per sample, which an attack tries to increase."""


class Classifier(nn.Module):
    """Base class: a backbone that returns features, and a head that turns them into a prediction.

    A subclass implements `forward`; it may override `probabilities` (softmax by default), `predict_batch`
    (to add uncertainty scores) and `default_loss` (cross-entropy by default). Once registered with
    `randomset.models.register`, it can be trained, saved, evaluated and compared by name.

    Args:
        backbone: a module that returns features (B × F), maps (B × F × H × W) or tokens (B × T × F); maps and
            tokens are averaged.
        num_classes: N, or the names of the classes in label order.
        in_features: F, if the backbone does not state it as `num_features` or through its last layer.
        preprocess: a module applied to the inputs first, such as `Standardise`.
        freeze_backbone: whether to train everything but the backbone.
    """

    method: ClassVar[str] = ""
    """The name that the class is registered under."""
    bounded: ClassVar[bool] = False
    """Whether predictions are random sets, with lower and upper probabilities."""
    has_backbone: ClassVar[bool] = True
    """False for a model composed of other classifiers, which have their own backbones."""
    base_method: ClassVar[str | None] = None
    """The method whose trained model this method can build on, if any."""
    chooses_sets: ClassVar[bool] = False
    """Whether training chooses the sets of random-set heads, or takes a budget."""
    builds_on_meta: ClassVar[bool] = True
    """Whether the constructor works on the meta device, where a file is checked without allocating memory."""

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int | Sequence[str],
        *,
        in_features: int | None = None,
        preprocess: nn.Module | None = None,
        freeze_backbone: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(backbone, nn.Module):
            raise RandomSetError(
                "backbone must be a torch.nn.Module",
                got=type(backbone).__name__,
                remedy="randomset.backbones has some: small_cnn(), mlp(64), resnet(18), …",
            )
        names = () if isinstance(num_classes, int) else tuple(num_classes)
        self.num_classes = num_classes if isinstance(num_classes, int) else len(names)
        if self.num_classes < 2:
            raise RandomSetError("expected two or more classes", got=self.num_classes)
        self._names = names
        self.preprocess, self.backbone = preprocess, backbone
        self.in_features = in_features or width_of(backbone)
        self.replaced_layer: str | None = None
        self.notes: dict[str, Any] = {}
        """JSON-serialisable metadata, saved with the model, such as its training settings."""
        self.backbone_frozen = False
        self.freeze_backbone(freeze_backbone)

    # -- parts ----------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in label order."""
        return self.known_classes or tuple(map(str, range(self.num_classes)))

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The names of the classes if they were given, else ()."""
        names = self._names or tuple(self.notes.get("classes") or ())
        return names if len(names) == self.num_classes else ()

    @property
    def options(self) -> dict[str, Any]:
        """Further constructor arguments, JSON-serialisable."""
        return {}

    @property
    def device(self) -> torch.device:
        """The device of the parameters, to which `predict` moves its inputs."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters, to which `predict` casts its inputs."""
        return next(self.parameters()).dtype

    @property
    def portable(self) -> bool:
        """Whether the model is made of torch modules only, so that it can be saved and exported."""
        return True

    @property
    def familiar_from(self) -> float | None:
        """The smallest reliability of an input that is called familiar; None for a model without one."""
        return None

    @property
    def input_spec(self) -> InputSpec | None:
        """The form of the inputs that the model was trained on, if recorded."""
        return InputSpec.from_notes(self.notes)

    def freeze_backbone(self: _C, frozen: bool = True) -> _C:
        """Freeze the backbone's weights and running statistics during training, or unfreeze them."""
        if frozen or self.backbone_frozen:
            self.backbone.requires_grad_(not frozen)
        self.backbone_frozen = frozen
        return self.train(self.training)

    def train(self: _C, mode: bool = True) -> _C:
        """Set the mode; a frozen backbone stays in evaluation mode."""
        super().train(mode)
        if self.backbone_frozen:
            self.backbone.eval()
        return self

    # -- forward --------------------------------------------------------------------------------

    def features(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the backbone's features, as (B × F)."""
        inputs, named = self._preprocessed(inputs, named)
        output = self._backbone_output(inputs, named)
        return flat_features(output, channels_first=output.dim() > 3)

    def _backbone_output(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        return feature_tensor(self.backbone(*inputs, **named))

    def _preprocessed(
        self, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.preprocess is None:
            return inputs, named
        if inputs:
            return (self.preprocess(inputs[0]), *inputs[1:]), named
        if len(named) != 1:
            raise RandomSetError(
                "it is not clear which input to preprocess",
                got=", ".join(named) or "none",
                remedy="Pass that input first and without its name",
            )
        return (), {name: self.preprocess(value) for name, value in named.items()}

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the outputs that the loss expects."""
        raise NotImplementedError

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Turn outputs of `forward` into class probabilities (B × N)."""
        return outputs.float().softmax(-1)

    def diagnostics(self, outputs: Tensor) -> dict[str, Tensor]:
        """Return further quantities to log in validation, one number per sample."""
        return {}

    def default_loss(self) -> nn.Module:
        """Return the loss to train with unless another one is given."""
        return CrossEntropy()

    # -- prediction -----------------------------------------------------------------------------

    @torch.no_grad()
    def predict(
        self, inputs: Any, *, batch_size: int = 256, progress: bool | None = None, **options: Any
    ) -> Prediction | RandomSet:
        """Predict in evaluation mode, without gradients: a `Prediction`, or a `RandomSet` where `bounded`.

        Inputs are a tensor or an array, cut into batches of `batch_size`; a data set; or a data loader or any
        other iterable of batches, whose labels are dropped. They move to the model's device; the prediction
        is on the device of the tensor that was passed, and on the CPU for everything else. Further options
        are those of `predict_batch`.
        """
        spec = self.input_spec
        inputs = as_array(inputs if spec is None else spec.by_name(inputs))
        if spec is not None and isinstance(inputs, (Tensor, np.ndarray)):
            inputs = spec.batched(torch.as_tensor(inputs))
        home = inputs.device if isinstance(inputs, Tensor) else "cpu"
        batches, total, _ = cut_into_batches(inputs, batch_size)
        shown = False if progress is None and (total or 2) < 2 else progress
        parts: list[Any] = []
        with evaluating(self), progress_bar("predicting", total, shown) as advance:
            for batch in batches:
                given = self.converted(inputs_alone(batch), spec)
                parts.append(self._predicted(given, spec, options).to(home))
                advance(1)
        if not parts:
            raise ShapeError("no inputs to predict", got="no batches", expected="at least one input")
        return parts[0] if len(parts) == 1 else type(parts[0]).concatenate(parts)

    def converted(self, inputs: Any, spec: InputSpec | None) -> Any:
        """Convert a batch to the form of the training inputs, and to the model's device and precision."""
        inputs = as_floating(inputs, self.dtype)
        if spec is not None and isinstance(inputs, Tensor):
            inputs = as_floating(spec.fit(inputs, resize=False)[0], self.dtype)
        return moved(inputs, self.device)

    def _predicted(self, inputs: Any, spec: InputSpec | None, options: dict[str, Any]) -> Any:
        try:
            return self.predict_batch(inputs, **options)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError) as error:  # torch's own messages on shapes and types
            shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
            raise ShapeError(
                "the model cannot take these inputs",
                got=f"a batch of shape {shape} ({first_line(error)})",
                expected="" if spec is None else spec.expected,
                remedy="Check the layout: samples first, then channels" if spec is None else "",
            ) from error

    def predict_batch(self, inputs: Any) -> Prediction | RandomSet:
        """Predict one batch that is on the model's device, in the mode that the model is in."""
        return Prediction(self.probabilities(call_with(self, inputs)))

    def as_logits(self) -> LogProbabilities:
        """Return a module in evaluation mode whose outputs are log-probabilities (B × N)."""
        return LogProbabilities(self)

    def objectives(self) -> dict[str, Objective]:
        """Return per-sample losses that an attack can increase, by name: (inputs, labels) → (B)."""
        logits = self.as_logits()
        return {"own loss": lambda x, y: nn.functional.cross_entropy(logits(x), y, reduction="none")}

    def softmax_counterpart(self) -> nn.Module | None:
        """Return a plain softmax model on the same backbone, to compare prediction times with, if any."""
        return None

    # -- after training -------------------------------------------------------------------------

    def calibrate(self, data: Any, **options: Any) -> CalibrationReport:
        """Fit a temperature to held-out data: see `randomset.calibrate`."""
        raise RandomSetError(
            "this model has no calibration",
            got=type(self).__name__,
            expected="a random-set or a softmax network",
        )

    @classmethod
    def train_on(cls: type[_C], job: TrainingJob) -> _C:
        """Build and train a model for a training job; called by `randomset.training.train`."""
        model = cls(num_classes=job.classes, **job.parts(), **cls.train_options(job))
        job.fit(model)
        return model

    @classmethod
    def train_options(cls, job: TrainingJob) -> dict[str, Any]:
        """Return the constructor's arguments that depend on the training data."""
        return {}

    # -- files ----------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write `model.safetensors`: the weights, and how to build the model, in its header."""
        from randomset.models.storage import save  # circular: storage imports this module

        return save(self, folder)

    @classmethod
    def load(
        cls: type[_C],
        folder: str | Path,
        backbone: nn.Module | None = None,
        preprocess: nn.Module | None = None,
    ) -> _C:
        """Load a model written by `save`, on the CPU and in evaluation mode; no code in the file is executed.

        Backbones of `randomset.backbones` are rebuilt. For any other backbone, pass a module of the same
        architecture; for a network built by `from_classifier`, pass such a classifier. Preprocessing other
        than `Standardise` must be passed, too.
        """
        from randomset.models.storage import load

        model = load(folder, backbone, preprocess)
        if not isinstance(model, cls):
            raise RandomSetError(
                f"the folder holds a model of another class: {type(model).__name__}",
                got=str(folder),
                expected=cls.__name__,
                remedy="randomset.models.load loads models of any class",
            )
        return model

    def description(self) -> dict[str, Any]:
        """Return the metadata, besides the weights, from which the model can be rebuilt."""
        preprocess, spec = self.preprocess, getattr(self.backbone, "spec", None)
        mean = getattr(preprocess, "mean", None)
        return {
            "method": self.method,
            "num_classes": self.num_classes,
            "classes": list(self._names),
            "backbone": spec if isinstance(spec, dict) else None,
            "backbone_class": type(self.backbone).__name__,
            "replaced_layer": self.replaced_layer,
            "in_features": self.in_features,
            "preprocess": None if preprocess is None else type(preprocess).__name__,
            "channels": len(mean) if isinstance(mean, Tensor) else None,
            "frozen": self.backbone_frozen,
            "options": self.options,
        }

    @classmethod
    def from_description(cls: type[_C], description: dict[str, Any], builder: Builder) -> _C:
        """Build the model that `description` describes, with untrained weights."""
        return cls(
            builder.backbone(description),
            description.get("classes") or description["num_classes"],
            in_features=description.get("in_features"),
            preprocess=builder.preprocess(description),
            freeze_backbone=bool(description.get("frozen")),
            **description["options"],
        )


class LogProbabilities(nn.Module):
    """A classifier whose output is log p (B × N): its softmax is what the classifier predicts.

    It shares the modules of the classifier, and always runs them in evaluation mode.
    """

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model
        self.training = False

    def train(self, mode: bool = True) -> LogProbabilities:
        """Stay in evaluation mode, and leave the mode of the shared modules alone."""
        return self

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return log-probabilities (B × N)."""
        with evaluating(self.model):
            p = self.probabilities(*inputs, **named)
        return p.clamp_min(torch.finfo(p.dtype).tiny).log()

    def probabilities(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the probabilities (B × N) of a batch."""
        return self.model.probabilities(self.model(*inputs, **named))
