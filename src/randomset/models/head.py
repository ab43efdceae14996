"""The random-set head: maps features to one belief logit per set of the budget."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.errors import BudgetError, RandomSetError, ShapeError

__all__ = ["RandomSetHead"]

_LOWEST = 1e-3  # keeps the initial logit of Θ finite
_WEIGHT_SCALE = 0.1


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
        return self.layers(features)

    def extra_repr(self) -> str:  # noqa: D102
        return repr(self.budget)
