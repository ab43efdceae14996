"""Adversarial attacks: FGSM and PGD in the L∞ ball of radius ε, clipped to [0, 1].

An objective measures the loss of a model on each sample, (inputs, labels) → (n); an attack maximises it. A
loss that is flat where the model is confident (clipped probabilities) gives no gradient to follow. This hides
a weakness without removing it, so the margin of log-probabilities is provided in addition to the own loss.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError, ShapeError

__all__ = ["Objective", "cross_entropy_objective", "fgsm", "margin_objective", "pgd"]

Objective = Callable[[Tensor, Tensor], Tensor]


def cross_entropy_objective(logits: Callable[[Tensor], Tensor]) -> Objective:
    """Objective −log p(label) for a model that returns logits, such as `network.as_logits()`."""

    def objective(inputs: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits(inputs), labels, reduction="none")

    return objective


def margin_objective(logits: Callable[[Tensor], Tensor]) -> Objective:
    """Objective: log-probability of the best wrong class minus the label's; positive if misclassified."""

    def objective(inputs: Tensor, labels: Tensor) -> Tensor:
        outputs = logits(inputs)
        own = outputs.gather(1, labels[:, None]).squeeze(1)
        return outputs.scatter(1, labels[:, None], -torch.inf).amax(1) - own

    return objective


def fgsm(objective: Objective, inputs: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Fast gradient sign method: one step of size ε along the sign of the gradient, clipped to [0, 1].

    >>> away = margin_objective(lambda x: torch.stack((x[:, 0], 1 - x[:, 0]), 1))
    >>> fgsm(away, torch.tensor([[0.75]]), torch.tensor([0]), 0.25)
    tensor([[0.5000]])
    """
    _check(inputs, epsilon)
    return (inputs + epsilon * _gradient(objective, inputs, labels).sign()).clamp(0, 1)


def pgd(
    objective: Objective,
    inputs: Tensor,
    labels: Tensor,
    epsilon: float,
    *,
    steps: int = 20,
    step: float | None = None,
    restarts: int = 1,
    seed: int | None = 0,
) -> Tensor:
    """Projected gradient descent in the L∞ ball of radius ε and [0, 1]; keeps the worst end point per sample.

    `step` is 2.5 ε / steps by default. Every restart begins at a random point of the ball, or at the image
    itself if the seed is None.

    >>> away = margin_objective(lambda x: torch.stack((x[:, 0], 1 - x[:, 0]), 1))
    >>> pgd(away, torch.tensor([[0.75]]), torch.tensor([0]), 0.5, seed=None)
    tensor([[0.2500]])
    """
    _check(inputs, epsilon)
    if steps < 1 or restarts < 1:
        raise RandomSetError(
            "steps and restarts must be at least 1", got=f"steps={steps}, restarts={restarts}"
        )
    length = 2.5 * epsilon / steps if step is None else step
    low, high = (inputs - epsilon).clamp_min(0), (inputs + epsilon).clamp_max(1)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    worst, highest = inputs.clone(), _values(objective, inputs, labels)
    for _ in range(restarts):
        point = inputs
        if generator is not None:
            noise = torch.rand(inputs.shape, generator=generator).to(inputs)
            point = (inputs + epsilon * (2 * noise - 1)).clamp(0, 1)
        for _ in range(steps):
            point = point + length * _gradient(objective, point, labels).sign()
            point = torch.minimum(torch.maximum(point, low), high)
        values = _values(objective, point, labels)
        better = values > highest
        highest = torch.where(better, values, highest)
        worst = torch.where(better.reshape(-1, *[1] * (inputs.dim() - 1)), point, worst)
    return worst


def _gradient(objective: Objective, inputs: Tensor, labels: Tensor) -> Tensor:
    with torch.enable_grad():
        watched = inputs.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(watched, labels).sum(), watched)
    return gradient


@torch.no_grad()
def _values(objective: Objective, inputs: Tensor, labels: Tensor) -> Tensor:
    return objective(inputs, labels)


def _check(inputs: Tensor, epsilon: float) -> None:
    if not inputs.is_floating_point() or inputs.min() < 0 or inputs.max() > 1:
        raise ShapeError(
            "attacks expect pixels in [0, 1]",
            got=f"{inputs.dtype} from {inputs.min().item():g} to {inputs.max().item():g}",
            expected="floats in [0, 1]",
        )
    if not epsilon >= 0:
        raise RandomSetError("epsilon must be non-negative", got=epsilon)
