"""RandomSetNetwork: any backbone with a random-set head."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from randomset._core.batches import call_with, feature_tensor
from randomset.backbones.surgery import is_output_of_layer, last_linear, replace_with_identity
from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.belief.random_set import RandomSet
from randomset.belief.repair import Repair
from randomset.errors import FileFormatError, RandomSetError
from randomset.models.base import Classifier, LogProbabilities, Objective
from randomset.models.calibration import Calibration, calibration_from_spec, calibration_from_state
from randomset.models.head import RandomSetHead, fit_head
from randomset.models.loss import RandomSetLoss
from randomset.models.objectives import belief_objective, logit_objective
from randomset.models.reliability import Reliability, reliability_from_spec, reliability_from_state
from randomset.models.reliability_fitting import ReliabilityReport, fit_reliability
from randomset.models.storage import register
from randomset.models.temperature import CalibrationReport, calibrate_random_set

if TYPE_CHECKING:
    from randomset.models.storage import Builder
    from randomset.models.training_job import TrainingJob

__all__ = ["RandomSetNetwork"]

_N = TypeVar("_N", bound="RandomSetNetwork")


@register("rsnn")
class RandomSetNetwork(Classifier):
    """A backbone that returns features, and a head that turns them into belief logits.

    Args:
        backbone: a module that returns features (B × F), maps (B × F × H × W) or tokens (B × T × F); maps and
            tokens are averaged. For a complete classifier, use `from_classifier`.
        budget: the sets of classes, one output each.
        in_features: F, if the backbone does not state it as `num_features` or through its last layer.
        hidden: widths of ReLU layers in the head; the paper's are (1024, 512).
        dropout: the share of features that the head drops in training.
        preprocess: a module applied to the inputs first, such as `Standardise`.
        freeze_backbone: whether to train only the head.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> network = RandomSetNetwork(nn.Sequential(nn.Linear(8, 16), nn.ReLU()), budget)
    >>> network(torch.randn(5, 8)).shape        # belief logits
    torch.Size([5, 4])
    >>> network.predict(torch.randn(5, 8)).pignistic.shape
    torch.Size([5, 3])
    """

    bounded = True
    chooses_sets = True
    builds_on_meta = False  # the operators of a budget are computed from its sets

    calibration: Calibration | None
    reliability: Reliability | None

    def __init__(
        self,
        backbone: nn.Module,
        budget: Budget,
        *,
        in_features: int | None = None,
        hidden: Sequence[int] = (),
        dropout: float = 0.0,
        preprocess: nn.Module | None = None,
        freeze_backbone: bool = False,
    ) -> None:
        classes = budget.num_classes if isinstance(budget, Budget) else 2  # the head raises for anything else
        super().__init__(backbone, classes, in_features=in_features, preprocess=preprocess)
        self.head = RandomSetHead(self.in_features, budget, hidden, dropout=dropout)
        auxiliary = getattr(backbone, "auxiliary_features", None)
        self.auxiliary_head = RandomSetHead(auxiliary, budget) if isinstance(auxiliary, int) else None
        self.calibration = None
        self.reliability = None
        self._unverified = False  # whether a classifier's forward has yet to be checked
        self.freeze_backbone(freeze_backbone)

    @classmethod
    def from_classifier(
        cls: type[_N], model: nn.Module, budget: Budget, *, layer: str | None = None, **options: Any
    ) -> _N:
        """Build from a classifier, whose last linear layer is replaced by a random-set head.

        The network uses a copy of the model. Models of torchvision, timm and Hugging Face are supported, as
        are plain modules. If it is ambiguous which layer to replace, the error lists the candidates; choose
        one with `layer`. Further options are those of the class.

        >>> classifier = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1))
        >>> network = RandomSetNetwork.from_classifier(classifier, Budget.powerset(3))
        >>> network.replaced_layer, network(torch.randn(5, 8)).shape
        ('2', torch.Size([5, 7]))
        """
        if not isinstance(model, nn.Module):
            raise RandomSetError("the classifier must be a torch.nn.Module", got=type(model).__name__)
        name = last_linear(model, layer, budget.num_classes)
        backbone = copy.deepcopy(model)
        network = cls(backbone, budget, in_features=replace_with_identity(backbone, name), **options)
        network.replaced_layer, network._unverified = name, True
        return network

    # -- parts ----------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """The budget; its sets are the outputs."""
        return self.head.budget

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The names of the classes, in label order."""
        return self.budget.classes

    @property
    def operators(self) -> BudgetOperators:
        """The budget's operators, on the device of the network."""
        return self.head.operators

    @property
    def device(self) -> torch.device:
        """Device of the head; `predict` moves its inputs there."""
        return self.operators.sizes.device

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the head."""
        return self.head.layers[-1].weight.dtype  # type: ignore[return-value]

    @property
    def familiar_from(self) -> float | None:
        """The smallest reliability of an input that is called familiar; None without a reliability."""
        return None if self.reliability is None else float(self.reliability.familiar_from)

    @property
    def options(self) -> dict[str, Any]:
        """Further constructor arguments, JSON-serialisable."""
        return {"hidden": list(self.head.hidden), "dropout": self.head.dropout}

    # -- forward --------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return belief logits (B × |O|); in training, a backbone with an auxiliary output gives a pair."""
        if self.auxiliary_head is None or not self.backbone.training:
            return self.head(self.features(*inputs, **named))
        inputs, named = self._preprocessed(inputs, named)
        main, auxiliary = self.backbone(*inputs, **named)
        return self.head(main), self.auxiliary_head(auxiliary)  # type: ignore[return-value]

    def _backbone_output(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        if not self._unverified or torch.compiler.is_compiling():
            return super()._backbone_output(inputs, named)
        # On the first call only: check that the model returns the output of the replaced layer unchanged.
        assert self.replaced_layer is not None
        seen: list[Tensor] = []
        layer = self.backbone.get_submodule(self.replaced_layer)
        hook = layer.register_forward_hook(lambda _, args, output: seen.append(output))
        try:
            output = feature_tensor(self.backbone(*inputs, **named))
        finally:
            hook.remove()
        if not seen or not is_output_of_layer(output, seen[-1]):
            raise RandomSetError(
                "the model changes the output of its last layer",
                got=f"{type(self.backbone).__name__}, whose output is not that of {self.replaced_layer}",
                expected="a model that returns logits, without a softmax in its forward",
                remedy="Remove the softmax, or name another layer with layer=…",
            )
        self._unverified = False
        return output

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return BetP (B × N) of belief logits, uncalibrated: what validation measures."""
        return RandomSet.from_logits(outputs, self.operators).pignistic

    def diagnostics(self, outputs: Tensor) -> dict[str, Tensor]:
        """Return whether each belief was invalid, and the share of its mass that was negative."""
        validity = RandomSet.from_logits(outputs, self.operators).validity
        return {"invalid": validity.repaired.float(), "negative_mass": validity.negative}

    def default_loss(self) -> RandomSetLoss:
        """Return the paper's loss."""
        return RandomSetLoss(self.budget)

    # -- prediction -----------------------------------------------------------------------------

    def predict(
        self, inputs: Any, *, batch_size: int = 256, progress: bool | None = None, **options: Any
    ) -> RandomSet:
        """Predict a random set for each input: see `Classifier`.

        Options are `calibrated`, `discounted` and `repair`.
        """
        return super().predict(inputs, batch_size=batch_size, progress=progress, **options)  # type: ignore[return-value]

    def predict_batch(
        self, inputs: Any, *, calibrated: bool = True, discounted: bool = True, repair: Repair = "clip"
    ) -> RandomSet:
        """Predict one batch, with the calibration and the reliability unless they are switched off."""
        features = call_with(self.features, inputs)
        return self.answer(features, calibrated=calibrated, discounted=discounted, repair=repair)

    def answer(
        self,
        features: Tensor,
        *,
        calibrated: bool = True,
        discounted: bool = True,
        repair: Repair = "clip",
    ) -> RandomSet:
        """Return the random set that the head gives for features, discounted by the reliability."""
        options: Any = {"calibrated": calibrated, "discounted": discounted, "repair": repair}
        return self.answers(features, **options)[1]

    def answers(
        self,
        features: Tensor,
        *,
        calibrated: bool = True,
        discounted: bool = True,
        repair: Repair = "clip",
    ) -> tuple[RandomSet, RandomSet]:
        """Return `answer` before and after its discount."""
        logits, reliability = self.head(features), self.reliability if discounted else None
        if calibrated and reliability is not None:
            logits = logits / reliability.sharpening
        answer = self.random_set(logits, calibrated=calibrated, repair=repair)
        return answer, answer if reliability is None else reliability.weaken(answer, features)

    def random_set(self, logits: Tensor, *, calibrated: bool = True, repair: Repair = "clip") -> RandomSet:
        """Convert belief logits of this network to a random set, not discounted."""
        if calibrated and self.calibration is not None:
            return self.calibration.random_set(logits, self.operators, repair)
        return RandomSet.from_logits(logits, self.operators, repair)

    def as_logits(self, *, calibrated: bool = True) -> LogProbabilities:
        """Return a module in evaluation mode that yields log BetP (B × N), for tools that expect logits.

        >>> network = RandomSetNetwork(nn.Linear(8, 16), Budget.powerset(3))
        >>> x = torch.randn(5, 8)
        >>> torch.allclose(network.as_logits()(x).softmax(-1), network.predict(x).pignistic)
        True
        """
        return _PignisticLogits(self, calibrated)

    def objectives(self) -> dict[str, Objective]:
        """Return the paper's loss, the same loss clipped as in the authors' code, and the belief logits."""
        return {
            "own loss": belief_objective(self),
            "own loss clipped": belief_objective(self, clip=1e-7),
            "belief logits": logit_objective(self),
        }

    def softmax_counterpart(self) -> nn.Module:
        """Return a linear layer with N outputs on the same features."""
        return _SoftmaxCounterpart(self)

    # -- after training -------------------------------------------------------------------------

    def calibrate(self, data: Any, **options: Any) -> CalibrationReport:
        """Fit a temperature to held-out data and keep it: see `randomset.calibrate`."""
        return calibrate_random_set(self, data, **options)

    def fit_reliability(self, train: Any, val: Any, **options: Any) -> ReliabilityReport:
        """Fit how well the training data support a prediction: see `randomset.models.fit_reliability`."""
        return fit_reliability(self, train, val, **options)

    @classmethod
    def train_on(cls: type[_N], job: TrainingJob) -> _N:
        """Choose the sets, train the network on them, and calibrate it if there are validation data.

        The network starts from the plain network that chose the sets, unless the settings say otherwise.
        """
        from randomset.models.set_selection import select_sets  # imports scikit-learn, which is slow

        budget = select_sets(job)
        config = job.config
        options = {"hidden": config.hidden, "dropout": 0.1 if job.reads_tokens else 0.0}
        parts = job.parts()
        if config.freeze:  # draws as many random numbers as earlier versions did, for the same results
            RandomSetHead(parts["in_features"], budget, config.hidden)
        network = cls(budget=budget, **parts, **options)
        loss = RandomSetLoss(budget, config.alpha, config.beta, config.likelihood_weight)
        if config.starts_plain:
            plain, features = job.artifacts["plain"], job.artifacts.pop("features", None)
            network.backbone.load_state_dict(plain.backbone.state_dict())
            resumed = job.resume and job.out is not None and (job.out / "checkpoints" / "last.ckpt").exists()
            if not resumed:  # else the checkpoint has the weights
                features = job.features(plain) if features is None else features
                seed = config.seed if job.seed is None else job.seed
                fit_head(network.head, features, job.labels, loss, job.loss_weights, seed=seed)
            del features
        job.log("Training the random-set network …")
        _, recipe = config.phases(job.samples)
        earlier = "first" if config.starts_plain else None
        job.fit(network, loss=loss, recipe=recipe, reliability=config.reliability, earlier=earlier)
        return network

    # -- files ----------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write `model.safetensors`, which is complete, and a readable copy of the budget, `budget.json`."""
        folder = super().save(folder)
        self.budget.save(folder / "budget.json")
        return folder

    def description(self) -> dict[str, Any]:
        """Return the metadata, besides the weights, from which the network can be rebuilt."""
        return {
            **super().description(),
            "budget": json.loads(self.budget.to_json()),
            "calibration": None if self.calibration is None else self.calibration.spec,
            "reliability": None if self.reliability is None else self.reliability.spec,
        }

    @classmethod
    def from_description(cls: type[_N], description: dict[str, Any], builder: Builder) -> _N:
        """Build the network that `description` describes, with untrained weights."""
        options, budget = description["options"], Budget.from_json(json.dumps(description["budget"]))
        preprocess, backbone = builder.preprocess(description), builder.backbone(description)
        builder.check_widths([description["in_features"], *options["hidden"], len(budget)])
        network = cls(
            backbone,
            budget,
            in_features=description["in_features"],
            preprocess=preprocess,
            freeze_backbone=bool(description["frozen"]),
            **options,
        )
        network.calibration = calibration_from_spec(description["calibration"])
        network.reliability = reliability_from_spec(
            description.get("reliability"),
            network.in_features,
            network.num_classes,
            sum(tensor.numel() for tensor in builder.state.values()),
        )
        weights = (tensor for name, tensor in builder.state.items() if name.startswith("head.layers."))
        precision = next((tensor.dtype for tensor in weights), torch.float32)
        if not precision.is_floating_point:
            raise FileFormatError("the weights are not floating-point numbers", got=str(precision))
        return network.to(precision)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Adopt the calibration and the reliability of the state dict, or their absence."""
        self.calibration = calibration_from_state(state_dict, f"{prefix}calibration.", self.calibration)
        if self.calibration is not None:
            self.calibration.to(self.device)
        self.reliability = reliability_from_state(
            state_dict, f"{prefix}reliability.", self.in_features, self.num_classes
        )
        if self.reliability is not None:
            self.reliability.to(self.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class _PignisticLogits(LogProbabilities):
    """A network that outputs log BetP, whose softmax is the pignistic probability."""

    def __init__(self, network: RandomSetNetwork, calibrated: bool = True) -> None:
        super().__init__(network)
        self.calibrated = calibrated

    def probabilities(self, *inputs: Any, **named: Any) -> Tensor:
        """Return BetP (B × N)."""
        network: Any = self.model
        return network.answer(network.features(*inputs, **named), calibrated=self.calibrated).pignistic


class _SoftmaxCounterpart(nn.Module):
    """A softmax model that shares the backbone of a random-set network."""

    def __init__(self, network: RandomSetNetwork) -> None:
        super().__init__()
        self.network = network
        self.layer = nn.Linear(network.in_features, network.num_classes).to(next(network.head.parameters()))

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return logits (B × N)."""
        return self.layer(self.network.features(*inputs, **named))
