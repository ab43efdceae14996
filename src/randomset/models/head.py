"""The head: from features to one belief logit for each set of the budget."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from randomset.belief.budget import Budget
from randomset.belief.operators import BudgetOperators
from randomset.errors import BudgetError, RandomSetError, ShapeError

__all__ = ["RandomSetHead"]

_LOWEST = 1e-3  # the belief in Θ would start at infinity
_SMALL = 0.1


class RandomSetHead(nn.Module):
    """Belief logits from features, Bel = sigmoid(W h + b): (…, F) → (…, |O|).

    Linear by default; `hidden=(1024, 512)` puts the paper's two ReLU layers before it, `dropout` acts on the
    input of every layer. The last layer starts near the beliefs of one who knows nothing: its bias at the
    log-odds of |A|/N, its weights a tenth of torch's. Short trainings gain by the former; by the latter,
    features that were learned before are not destroyed by the first steps. The budget's operators live
    inside: a state dict of another budget is refused.

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
            raise BudgetError("this is no budget", got=type(budget).__name__, expected="a randomset.Budget")
        widths = [in_features, *hidden]
        if not all(isinstance(width, int) and width > 0 for width in widths):
            raise RandomSetError("the widths of the head are not positive whole numbers", got=widths)
        self.in_features, self.hidden, self.dropout = in_features, tuple(hidden), dropout
        self.operators = BudgetOperators(budget)
        layers: list[nn.Module] = []
        for width, following in zip(widths, [*hidden, len(budget)], strict=True):
            layers += [nn.Dropout(dropout)] if dropout else []
            layers += [nn.Linear(width, following), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        share = self.operators.sizes / budget.num_classes
        with torch.no_grad():
            self.layers[-1].weight.mul_(_SMALL)  # type: ignore[operator]
            self.layers[-1].bias.copy_(share.clamp(_LOWEST, 1 - _LOWEST).logit())  # type: ignore[operator]

    @property
    def budget(self) -> Budget:
        """The budget whose sets are the outputs, in their order."""
        return self.operators.budget

    def forward(self, features: Tensor) -> Tensor:
        """Return belief logits."""
        if features.shape[-1] != self.in_features:
            raise ShapeError(
                "the features do not fit the head",
                got=str(tuple(features.shape)),
                expected=f"(…, {self.in_features})",
                remedy="Give the network in_features=…, the width of what its backbone yields",
            )
        return self.layers(features)

    def extra_repr(self) -> str:  # noqa: D102
        return repr(self.budget)
