"""RandomSetNetwork: any backbone with a random-set head, from training to the saved file."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from randomset._core.batches import (
    as_floating,
    call_with,
    cut_into_batches,
    evaluating,
    feature_tensor,
    flat_features,
    inputs_alone,
    moved,
    width_of,
)
from randomset._core.progress import progress_bar
from randomset.backbones.surgery import is_output_of_layer, last_linear, replace_with_identity
from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.belief.random_set import RandomSet
from randomset.belief.repair import Repair
from randomset.errors import RandomSetError, ShapeError
from randomset.models import storage
from randomset.models.calibration import Calibration
from randomset.models.head import RandomSetHead
from randomset.models.loss import RandomSetLoss

__all__ = ["PignisticLogits", "RandomSetNetwork"]


class RandomSetNetwork(nn.Module):
    """A backbone that yields features, and a head that turns them into belief logits.

    Args:
        backbone: a module that yields features (B × F), maps (B × F × H × W) or tokens (B × T × F), the
            latter two averaged; a whole classifier goes to `from_classifier`.
        budget: the sets of classes to have an output for.
        in_features: F, if the backbone does not tell it as `num_features` or by its last layer.
        hidden: widths of ReLU layers in the head; the paper's are (1024, 512).
        dropout: the share of features that the head drops in training.
        preprocess: a module that sees the inputs first, such as `Standardise`.
        freeze_backbone: whether to train the head alone.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> network = RandomSetNetwork(nn.Sequential(nn.Linear(8, 16), nn.ReLU()), budget)
    >>> network(torch.randn(5, 8)).shape        # belief logits
    torch.Size([5, 4])
    >>> network.predict(torch.randn(5, 8)).pignistic.shape
    torch.Size([5, 3])
    """

    calibration: Calibration | None
    preprocess: nn.Module | None

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
        super().__init__()
        if not isinstance(backbone, nn.Module):
            raise RandomSetError(
                "the backbone is no torch module",
                got=type(backbone).__name__,
                remedy="randomset.backbones.architectures has some: small_cnn(), mlp(64), resnet(18), …",
            )
        self.preprocess = preprocess
        self.backbone = backbone
        self.head = RandomSetHead(in_features or width_of(backbone), budget, hidden, dropout=dropout)
        second = getattr(backbone, "auxiliary_features", None)
        self.auxiliary_head = RandomSetHead(second, budget) if isinstance(second, int) else None
        self.calibration = None
        self.replaced_layer: str | None = None
        self.notes: dict[str, Any] = {}
        """Anything that JSON can hold, saved with the network, such as what it was trained on."""
        self._unseen = False  # whether a classifier's forward has yet to be watched
        self.backbone_frozen = False
        self.freeze_backbone(freeze_backbone)

    @classmethod
    def from_classifier(
        cls, model: nn.Module, budget: Budget, *, layer: str | None = None, **options: Any
    ) -> RandomSetNetwork:
        """Build from a classifier, whose last linear layer makes way for a random-set head.

        The model itself is left as it is; the network works on a copy. Models of torchvision, timm, Hugging
        Face and plain ones are understood; where the layer is not clear, the error names those that fit, and
        `layer` chooses. Further options are those of the class.

        >>> classifier = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1))
        >>> network = RandomSetNetwork.from_classifier(classifier, Budget.powerset(3))
        >>> network.replaced_layer, network(torch.randn(5, 8)).shape
        ('2', torch.Size([5, 7]))
        """
        if not isinstance(model, nn.Module):
            raise RandomSetError("the classifier is no torch module", got=type(model).__name__)
        name = last_linear(model, layer, budget.num_classes)
        backbone = copy.deepcopy(model)
        network = cls(backbone, budget, in_features=replace_with_identity(backbone, name), **options)
        network.replaced_layer, network._unseen = name, True
        return network

    # -- parts ----------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """The budget whose sets are the outputs."""
        return self.head.budget

    @property
    def operators(self) -> BudgetOperators:
        """The budget's operators, on the device of the network."""
        return self.head.operators

    @property
    def device(self) -> torch.device:
        """The device of the head, to which `predict` moves its inputs."""
        return self.operators.sizes.device

    def freeze_backbone(self, frozen: bool = True) -> RandomSetNetwork:
        """Train the head alone: the backbone's weights and running statistics stay as they are."""
        if frozen or self.backbone_frozen:
            self.backbone.requires_grad_(not frozen)
        self.backbone_frozen = frozen
        return self.train(self.training)

    def train(self, mode: bool = True) -> RandomSetNetwork:
        """Set the mode; a frozen backbone stays in evaluation mode."""
        super().train(mode)
        if self.backbone_frozen:
            self.backbone.eval()
        return self

    # -- forward --------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return belief logits (B × |O|); in training a backbone with an auxiliary output gives a pair."""
        if self.auxiliary_head is None or not self.backbone.training:
            return self.head(self.features(*inputs, **named))
        if self.preprocess is not None:
            inputs, named = self._preprocessed(inputs, named)
        main, second = self.backbone(*inputs, **named)
        return self.head(main), self.auxiliary_head(second)  # type: ignore[return-value]

    def features(self, *inputs: Any, **named: Any) -> Tensor:
        """Return what the backbone yields, as (B × F)."""
        if self.preprocess is not None:
            inputs, named = self._preprocessed(inputs, named)
        if self._unseen and not torch.compiler.is_compiling():
            output = self._watched(inputs, named)
        else:
            output = feature_tensor(self.backbone(*inputs, **named))
        return flat_features(output, channels_first=output.dim() > 3)

    def _preprocessed(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        assert self.preprocess is not None
        if inputs:
            return (self.preprocess(inputs[0]), *inputs[1:]), named
        if len(named) != 1:
            raise RandomSetError(
                "it is not clear which input is to be preprocessed",
                got=", ".join(named) or "none",
                remedy="Give that input first and without its name",
            )
        return (), {name: self.preprocess(value) for name, value in named.items()}

    def _watched(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """See, once, whether what leaves a classifier is what reached the layer that was taken out."""
        assert self.replaced_layer is not None
        seen: list[Tensor] = []
        place = self.backbone.get_submodule(self.replaced_layer)
        hook = place.register_forward_hook(lambda _, args, output: seen.append(output))
        try:
            output = feature_tensor(self.backbone(*inputs, **named))
        finally:
            hook.remove()
        if not seen or not is_output_of_layer(output, seen[-1]):
            raise RandomSetError(
                "the model changes what its last layer gives",
                got=f"an output of {type(self.backbone).__name__} that is not that of {self.replaced_layer}",
                expected="a model that returns logits, without a softmax in its forward",
                remedy="Leave the softmax out, or name another layer with layer=…",
            )
        self._unseen = False
        return output

    # -- prediction -----------------------------------------------------------------------------

    @torch.no_grad()
    def predict(
        self,
        inputs: Any,
        *,
        calibrated: bool = True,
        repair: Repair = "clip",
        batch_size: int = 256,
        progress: bool | None = None,
    ) -> RandomSet:
        """Predict a random set for each input, in evaluation mode and without gradients.

        Inputs are a tensor or an array, cut into batches of `batch_size`; a data set; or a data loader or any
        other iterable of batches, from which labels are set aside. They move to the network's device; the
        answer is on the device of the tensor that came in, on the CPU for everything else. A calibration that
        the network has is used unless `calibrated=False`.
        """
        batches, total, home = cut_into_batches(inputs, batch_size)
        shown = False if progress is None and (total or 2) < 2 else progress
        parts: list[RandomSet] = []
        with evaluating(self), progress_bar("predicting", total, shown) as advance:
            for batch in batches:
                found = as_floating(inputs_alone(batch), self._floating())
                logits = call_with(self, moved(found, self.device))
                parts.append(self.random_set(logits, calibrated=calibrated, repair=repair).to(home))
                advance(1)
        if not parts:
            raise ShapeError("there is nothing to predict", got="no batch", expected="at least one input")
        return parts[0] if len(parts) == 1 else RandomSet.concatenate(parts)

    def random_set(self, logits: Tensor, *, calibrated: bool = True, repair: Repair = "clip") -> RandomSet:
        """Turn belief logits of this network into a random set."""
        if calibrated and self.calibration is not None:
            return self.calibration.random_set(logits, self.operators, repair)
        return RandomSet.from_logits(logits, self.operators, repair)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return BetP (B × N) of belief logits, as they are: what validation measures."""
        return RandomSet.from_logits(outputs, self.operators).pignistic

    def diagnostics(self, outputs: Tensor) -> dict[str, Tensor]:
        """Return what else validation should measure, one number for each sample."""
        validity = RandomSet.from_logits(outputs, self.operators).validity
        return {"invalid": validity.repaired.float(), "negative_mass": validity.negative}

    def default_loss(self) -> RandomSetLoss:
        """Return the loss that trains this network if no other is named."""
        return RandomSetLoss(self.budget)

    def as_logits(self, *, calibrated: bool = True) -> PignisticLogits:
        """Return a module that gives log BetP (B × N), so that softmax-based tools work unchanged.

        >>> network = RandomSetNetwork(nn.Linear(8, 16), Budget.powerset(3))
        >>> x = torch.randn(5, 8)
        >>> torch.allclose(network.as_logits()(x).softmax(-1), network.predict(x).pignistic)
        True
        """
        return PignisticLogits(self, calibrated)

    def _floating(self) -> torch.dtype:
        return next(self.head.parameters()).dtype

    # -- files ----------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write `model.safetensors`, which holds all there is to know, and `budget.json` beside it."""
        return storage.save(self, Path(folder).expanduser())

    @classmethod
    def load(
        cls, folder: str | Path, backbone: nn.Module | None = None, preprocess: nn.Module | None = None
    ) -> RandomSetNetwork:
        """Read what `save` wrote, onto the CPU and in evaluation mode; nothing in the file is executed.

        A backbone of `randomset.backbones.architectures` is built again. For any other, give one of the same
        architecture; for a network that came from a classifier, give such a classifier. The same holds for
        preprocessing other than `Standardise`.
        """
        return storage.load(cls, Path(folder).expanduser(), backbone, preprocess)


class PignisticLogits(nn.Module):
    """A network whose output is log BetP: its softmax is the pignistic probability."""

    def __init__(self, network: RandomSetNetwork, calibrated: bool = True) -> None:
        super().__init__()
        self.network, self.calibrated = network, calibrated

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return log BetP (B × N)."""
        logits = self.network(*inputs, **named)
        betp = self.network.random_set(logits, calibrated=self.calibrated).pignistic
        return betp.clamp_min(torch.finfo(betp.dtype).tiny).log()
