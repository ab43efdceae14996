"""Muon: orthogonalised steps for convolutions, AdamW for all other weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Muon", "is_convolution", "orthogonalised"]

_RELATIVE = 24.0  # a convolution's relative change per step, over the learning rate of other weights
_MOMENTUM = 0.6
_BETAS, _EPS = (0.9, 0.95), 1e-8


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for convolutions that batch normalisation follows; AdamW for everything else.

    With the gradient G of a kernel W, as a matrix (out × rest), M ← 0.6 M + G and its Nesterov step
    G' = G + 0.6 M:

    W ← √out · W / ‖W‖ − 24 · lr · orthogonalised(G')

    The scale of the gradient cancels, so a loss averaged over many outputs does not need another learning
    rate. The norm of W is fixed, which does not matter before batch normalisation.
    """

    def __init__(self, params: Iterable[Any], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all weights that have a gradient; return what the closure returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    update = _orthogonal_step if is_convolution(p) else _adamw_step
                    update(p, p.grad, self.state[p], group)
        return loss


def is_convolution(parameter: Tensor) -> bool:
    """Return whether a parameter is a convolution kernel, which takes orthogonalised steps."""
    return parameter.dim() > 2


def _orthogonal_step(p: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    if not state:
        state["momentum_buffer"] = torch.zeros_like(p)
    momentum = state["momentum_buffer"].mul_(_MOMENTUM).add_(gradient)
    direction = orthogonalised(gradient.add(momentum, alpha=_MOMENTUM).flatten(1))
    p.mul_(len(p) ** 0.5 / p.norm().clamp_min(1e-12))
    p.add_(direction.view(p.shape), alpha=-_RELATIVE * group["lr"])


def _adamw_step(p: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    if not state:
        state["step"] = torch.zeros(())
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
    state["step"] += 1
    first, second = (1 - beta ** state["step"].item() for beta in _BETAS)
    mean = state["exp_avg"].lerp_(gradient, 1 - _BETAS[0])
    square = state["exp_avg_sq"].lerp_(gradient.square(), 1 - _BETAS[1])
    p.mul_(1 - group["lr"] * group["weight_decay"])
    p.addcdiv_(mean / first, (square / second).sqrt().add_(_EPS), value=-group["lr"])


def orthogonalised(matrix: Tensor, iterations: int = 3) -> Tensor:
    """Return a matrix with the same singular vectors and singular values near 1, by Newton–Schulz steps.

    Each iteration maps a singular value s to 3.4445 s − 4.775 s³ + 2.0315 s⁵, after a division by the
    Frobenius norm. (… m × n) → (m × n)

    >>> torch.linalg.svdvals(orthogonalised(torch.diag(torch.tensor([1.0, 2.0, 4.0])), 5)).round(decimals=1)
    tensor([1.1000, 0.8000, 0.7000])
    """
    wide = matrix if len(matrix) <= matrix.shape[1] else matrix.T
    x = wide / wide.norm().clamp_min(1e-12)
    for _ in range(iterations):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x if wide is matrix else x.T
