"""WrappedClassifier: a random-set classifier made from a trained classifier."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.checks import listed
from randomset.backbones.surgery import last_linear
from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.belief.random_set import RandomSet
from randomset.belief.repair import Repair
from randomset.errors import InvalidBeliefError, RandomSetError
from randomset.models.base import Classifier, Objective
from randomset.models.calibration import SoftmaxTemperature
from randomset.models.random_set import RandomSetNetwork
from randomset.models.softmax import Softmax, softmax_temperature
from randomset.models.storage import register
from randomset.models.temperature import CalibrationReport, calibration_report, label_outputs

if TYPE_CHECKING:
    from randomset.models.training_job import TrainingJob

__all__ = ["WrappedClassifier", "classes_of"]

logger = logging.getLogger(__name__)

_W = TypeVar("_W", bound="WrappedClassifier")
_LEAST = float(torch.finfo(torch.float32).eps)  # of an estimator's probabilities, for finite logarithms


@register("wrapped")
class WrappedClassifier(RandomSetNetwork):
    """A backbone and the last layer of a trained classifier, over a budget of singletons: see `wrap`.

    m({c}) = softmax(z / T)(c), discounted by the reliability. T is 1 unless `calibrate` has fitted it.

    Args:
        backbone: a module that returns features.
        budget: the singletons, one logit each.
        options: those of `RandomSetNetwork`.
    """

    base_method = "softmax"
    chooses_sets = False

    def __init__(self, backbone: nn.Module, budget: Budget, **options: Any) -> None:
        super().__init__(backbone, budget, **options)
        if len(budget) != budget.num_classes:
            raise RandomSetError(
                "a wrapped classifier has one output for each class",
                got=repr(budget),
                expected=f"Budget.singletons({budget.num_classes})",
            )

    @classmethod
    def from_classifier(
        cls: type[_W],
        model: nn.Module,
        budget: Budget | None = None,
        *,
        layer: str | None = None,
        **options: Any,
    ) -> _W:
        """Build from a trained classifier, with a copy of its weights: neither calibrated nor discounted.

        >>> classifier = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> network, x = WrappedClassifier.from_classifier(classifier), torch.randn(5, 8)
        >>> torch.allclose(network.predict(x).pignistic, classifier(x).softmax(-1))
        True
        """
        if isinstance(model, Classifier):
            return cls._from_softmax(model, budget, **options)
        if not isinstance(model, nn.Module):
            raise RandomSetError(
                "cannot wrap this classifier",
                got=type(model).__name__,
                expected="a torch.nn.Module, or a fitted estimator with predict_proba",
            )
        model = nn.Sequential(model) if isinstance(model, nn.Linear) else model
        name = last_linear(model, layer, 0 if budget is None else budget.num_classes)
        linear: Any = model.get_submodule(name)
        if type(linear).forward is not nn.Linear.forward:
            raise RandomSetError(
                "the last layer computes more than a linear function",
                got=f"{name}, a {type(linear).__name__}",
                expected="nn.Linear",
            )
        budget = _checked_budget(budget, linear.out_features, f"layer {name} of {type(model).__name__}")
        network = super().from_classifier(model, budget, layer=name, **options)
        return network._with_layer(linear)

    @classmethod
    def _from_softmax(cls: type[_W], model: Classifier, budget: Budget | None, **options: Any) -> _W:
        if model.bounded:
            raise RandomSetError(
                "the classifier is already a random-set network",
                got=type(model).__name__,
                remedy="It has a reliability, so use it as it is"
                if getattr(model, "familiar_from", None) is not None
                else "Fit its reliability: network.fit_reliability(train, val), or train it with one",
            )
        if not isinstance(model, Softmax) or type(model).predict_batch is not Softmax.predict_batch:
            raise RandomSetError(
                "cannot wrap this classifier",
                got=type(model).__name__,
                expected="a classifier whose prediction is the softmax of its logits, such as Softmax",
            )
        budget = _checked_budget(budget, model.num_classes, type(model).__name__)
        parts = {"preprocess": copy.deepcopy(model.preprocess), "in_features": model.in_features, **options}
        network = cls(copy.deepcopy(model.backbone), budget, **parts)
        network.replaced_layer = model.replaced_layer
        if model.input_spec is not None:
            network.notes = {**model.input_spec.to_notes(), "classes": list(network.classes)}
        return network._with_layer(model.layer)

    @classmethod
    def from_estimator(
        cls: type[_W],
        estimator: Any,
        classes: Sequence[str] | None = None,
        inputs: Tensor | None = None,
    ) -> _W:
        """Build from a fitted scikit-learn estimator: neither calibrated nor discounted.

        Its inputs are the features, scaled to those given (n × F), and its log-probabilities the logits. It
        cannot be saved or exported, which would need pickle.

        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> estimator = LogisticRegression(max_iter=500).fit(X, y)
        >>> network = WrappedClassifier.from_estimator(estimator)
        >>> bool((network.predict(X).labels.numpy() == estimator.predict(X)).all())
        True
        """
        found = classes_of(estimator)
        budget = Budget.singletons(tuple(map(str, found)) if classes is None else tuple(classes))
        _checked_budget(budget, len(found), type(estimator).__name__)
        width = int(getattr(estimator, "n_features_in_", 1)) if inputs is None else inputs.shape[1]
        scale = torch.ones(width) if inputs is None else _power_of_two(inputs)
        network = cls(_Scaled(1 / scale.double()), budget, in_features=width)
        network.head = _EstimatorHead(estimator, budget, scale)  # type: ignore[assignment]
        return network.eval()

    def _with_layer(self: _W, linear: nn.Linear) -> _W:
        """Copy a layer's weights into the head, and its precision and device."""
        self.head.to(linear.weight)
        layer: Any = self.head.layers[-1]
        with torch.no_grad():
            layer.weight.copy_(linear.weight)
            layer.bias.zero_() if linear.bias is None else layer.bias.copy_(linear.bias)
        return self.eval()

    # -- parts ----------------------------------------------------------------------------------

    @property
    def portable(self) -> bool:
        """Whether it can be saved and exported: a scikit-learn estimator cannot."""
        return not isinstance(self.head, _EstimatorHead)

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the head; an estimator's is double."""
        return super().dtype if self.portable else torch.float64

    # -- prediction -----------------------------------------------------------------------------

    def random_set(self, logits: Tensor, *, calibrated: bool = True, repair: Repair = "clip") -> RandomSet:
        """Convert class logits to a random set over the singletons, not discounted."""
        calibration = self.calibration if calibrated else None
        if calibration is None:
            calibration = SoftmaxTemperature(1.0).to(logits.device)
        return calibration.random_set(logits, self.operators, repair)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return the softmax of logits (B × N), uncalibrated."""
        return Classifier.probabilities(self, outputs)

    def diagnostics(self, outputs: Tensor) -> dict[str, Tensor]:
        """Return nothing: the masses are always valid."""
        return {}

    def default_loss(self) -> Any:
        """Return the cross-entropy, for training the classifier further."""
        return nn.CrossEntropyLoss()

    def objectives(self) -> dict[str, Objective]:
        """Return the cross-entropy, which an attack can increase."""
        return Classifier.objectives(self)

    def softmax_counterpart(self) -> Any:
        """Return a linear layer with N outputs on the same features; None for an estimator."""
        return super().softmax_counterpart() if self.portable else None

    # -- after training -------------------------------------------------------------------------

    def calibrate(self, data: Any, **options: Any) -> CalibrationReport:
        """Fit the temperature to held-out data and keep it: see `randomset.calibrate`."""
        logits, target = label_outputs(self, data, **options)
        if not logits.isfinite().all():
            raise RandomSetError(
                "the classifier's outputs for the validation samples are not finite",
                got=f"{int((~logits.isfinite()).any(1).sum())} of {len(logits)} samples with NaN or infinity",
                remedy="Check these samples, and that the classifier's weights are finite",
            )
        before = self.random_set(logits).pignistic
        temperature = softmax_temperature(logits, target)
        self.calibration = SoftmaxTemperature(temperature).to(self.device).eval()
        after = self.random_set(logits).pignistic
        return calibration_report("SoftmaxTemperature", [temperature], before, after, target)

    @classmethod
    def train_on(cls: type[_W], job: TrainingJob) -> _W:
        """Train a softmax network unless one is given, and wrap it."""
        if job.labels.dim() != 1:
            raise RandomSetError(
                "this method takes one class per sample", got=f"set-valued labels for {cls.method}"
            )
        if job.validation is None:
            raise RandomSetError(
                "wrapping a classifier needs validation data", got="none", remedy="Hold out some samples"
            )
        base = Softmax.train_on(job) if job.base is None else job.base
        kind = job.config.reliability
        network = cls.from_classifier(base, Budget.singletons(job.classes))
        logger.info("%s", network.calibrate(job.validation, progress=job.progress))
        if kind != "none":
            support = network.fit_reliability(job.batches(), job.validation, kind=kind, progress=job.progress)
            logger.info("%s", support)
        return network


def classes_of(estimator: Any) -> Any:
    """Return the classes of a fitted scikit-learn estimator, an array."""
    found = getattr(estimator, "classes_", None)
    if not isinstance(found, np.ndarray):
        raise RandomSetError(
            "the estimator is not fitted" if found is None else "the estimator predicts several labels",
            got=type(estimator).__name__,
            expected="a fitted classifier with one label per sample",
        )
    return found


def _power_of_two(inputs: Tensor) -> Tensor:
    """Return the power of two next to the standard deviation of each column: dividing by it is exact."""
    deviation = inputs.double().std(0, correction=0)
    return torch.where(deviation > 0, deviation.log2().round().exp2(), 1.0)


class _Scaled(nn.Module):
    """The features behind an estimator: its inputs times a factor, in double precision."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.factor: Tensor
        self.register_buffer("factor", factor)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.factor


class _EstimatorHead(nn.Module):
    """Log-probabilities of a scikit-learn estimator for its scaled inputs: (B × F) → (B × N)."""

    def __init__(self, estimator: Any, budget: Budget, scale: Tensor) -> None:
        super().__init__()
        self.estimator, self.budget, self.inputs = estimator, budget, _Scaled(scale.double())
        self.operators = BudgetOperators(budget)

    def forward(self, features: Tensor) -> Tensor:
        if not features.isfinite().all():  # some estimators accept missing values, but distances need numbers
            row = int((~features.isfinite()).any(1).nonzero()[0])
            error = InvalidBeliefError(
                "the inputs are not finite",
                got=f"NaN or infinity in input {row} of a batch",
                expected="finite numbers",
                remedy="Replace missing values before wrapping the estimator",
            )
            error.sample = row
            raise error
        with warnings.catch_warnings():
            # Columns keep their order, so the names that a data frame had in `fit` are not needed.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            probabilities = self.estimator.predict_proba(self.inputs(features).detach().cpu().numpy())
        return torch.as_tensor(probabilities, device=features.device).double().clamp_min(_LEAST).log()


def _checked_budget(budget: Budget | None, outputs: int, origin: str) -> Budget:
    """Return the budget of singletons for a number of outputs; reject a budget of other classes."""
    if outputs < 2:
        raise RandomSetError(
            "the classifier has a single output",
            got=origin,
            expected="a logit for each class",
            remedy="Give the logit of class 1 a second output for class 0, whose weights are zero",
        )
    if budget is not None and budget.num_classes != outputs:
        raise RandomSetError(
            "the classifier has a different number of classes",
            got=f"{outputs} outputs of {origin}",
            expected=f"{budget.num_classes}: {listed(budget.classes, 5)}",
            remedy="Wrap a classifier that was trained on these classes, or name its last layer: layer=…",
        )
    return Budget.singletons(outputs) if budget is None else budget
