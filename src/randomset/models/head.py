"""The random-set head: belief logits from features."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.errors import BudgetError, RandomSetError, ShapeError

__all__ = ["RandomSetHead", "fit_head"]

_LOWEST = 1e-3  # keeps the initial logit of Θ finite
_WEIGHT_SCALE = 0.1
_STEPS, _BATCH, _RATE, _PRIOR_STD = 150, 2048, 0.05, 2.0  # of `fit_head`


class RandomSetHead(nn.Module):
    """Belief logits from features, Bel = sigmoid(W h + b): (…, F) → (…, |O|).

    Linear by default; `hidden=(1024, 512)` adds the paper's two ReLU layers, and `dropout` applies to the
    input of every layer. The last layer is initialised close to complete ignorance: its bias is the log-odds
    of |A|/N, which helps on short schedules, and its weights are a tenth of torch's, so that the first steps
    do not destroy pretrained features. The head contains the budget's operators, so loading a state dict of
    a different budget fails.

    >>> import torch
    >>> head = RandomSetHead(64, Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"]))
    >>> head(torch.randn(5, 64)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self, in_features: int, budget: Budget, hidden: Sequence[int] = (), *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if not isinstance(budget, Budget):
            raise BudgetError("budget must be a randomset.Budget", got=type(budget).__name__)
        widths = [in_features, *hidden]
        if not all(isinstance(width, int) and width > 0 for width in widths):
            raise RandomSetError("the layer widths of the head must be positive integers", got=widths)
        self.in_features, self.hidden, self.dropout = in_features, tuple(hidden), dropout
        self.operators = BudgetOperators(budget)
        layers: list[nn.Module] = []
        for width, next_width in zip(widths, [*hidden, len(budget)], strict=True):
            layers += [nn.Dropout(dropout)] if dropout else []
            layers += [nn.Linear(width, next_width), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        share = self.operators.sizes / budget.num_classes
        with torch.no_grad():
            self.layers[-1].weight.mul_(_WEIGHT_SCALE)  # type: ignore[operator]
            self.layers[-1].bias.copy_(share.clamp(_LOWEST, 1 - _LOWEST).logit())  # type: ignore[operator]

    @property
    def budget(self) -> Budget:
        """The budget; its sets are the outputs, in order."""
        return self.operators.budget

    def forward(self, features: Tensor) -> Tensor:
        """Return belief logits."""
        if features.shape[-1] != self.in_features:
            raise ShapeError(
                "features have the wrong shape for the head",
                got=str(tuple(features.shape)),
                expected=f"(…, {self.in_features})",
                remedy="Pass in_features=…, the number of features that the backbone returns",
            )
        for layer in self.layers:
            features = layer(features)
        return features

    def extra_repr(self) -> str:  # noqa: D102
        return repr(self.budget)


def fit_head(
    head: RandomSetHead,
    features: Tensor,
    labels: Tensor,
    loss: nn.Module,
    weights: Tensor | None = None,
    seed: int = 0,
) -> None:
    """Fit a head to features (n × F) of the training samples, while the backbone stays as it is.

    A network whose head starts at random would spend its first epochs on what the plain network has learned
    already, and disturb its features on the way. Takes 150 steps of Adam on standardised features; the
    standardisation is then made part of the first layer. The weights have a
    normal prior, with which logits have the standard deviation 2, so that few samples do not make the beliefs
    extreme.
    """
    first = next(layer for layer in head.layers if isinstance(layer, nn.Linear))
    centre, scale = features.mean(0), features.std(0, correction=0)
    scale = scale.clamp_min(0.1 * float(scale.mean()) or 1.0)  # features that hardly vary say little
    size = min(_BATCH, len(features), max(_BATCH // 16, 2**18 // len(head.budget)))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(head.layers.parameters(), _RATE)
    mode = head.training, loss.training
    head.eval(), loss.eval()
    with torch.enable_grad():
        for step in range(_STEPS):
            for group in optimizer.param_groups:
                group["lr"] = _RATE * (1 + math.cos(math.pi * step / _STEPS)) / 2
            rows = torch.randint(len(features), (size,), generator=generator)
            outputs = head((features[rows] - centre) / scale)
            own = () if weights is None else (weights[rows],)
            prior = sum(w.shape[1] * w.square().sum() for w in head.parameters() if w.dim() > 1)
            penalty = prior / (2 * _PRIOR_STD**2 * len(features) * len(head.budget))
            value = loss(outputs, labels[rows], *own) + penalty
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        first.weight.div_(scale)
        first.bias.sub_(first.weight @ centre)
    head.train(mode[0]), loss.train(mode[1])
