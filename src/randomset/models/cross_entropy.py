"""Cross-entropy with sample weights, which torch's does not accept."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["CrossEntropy", "weighted_mean"]


class CrossEntropy(nn.CrossEntropyLoss):
    """torch's cross-entropy of logits (B × N), with a third argument: sample weights (B).

    >>> logits, labels = torch.zeros(2, 4), torch.tensor([0, 3])
    >>> round(CrossEntropy()(logits, labels, torch.tensor([1.0, 3.0])).item(), 4)
    1.3863
    """

    def forward(self, outputs: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the (weighted) mean over the samples whose label is not ignored."""
        if weight is None:
            return super().forward(outputs, labels)
        options = {"ignore_index": self.ignore_index, "label_smoothing": self.label_smoothing}
        each = nn.functional.cross_entropy(outputs, labels, self.weight, reduction="none", **options)  # type: ignore[arg-type]
        used = weight if labels.dim() > 1 else weight * (labels != self.ignore_index)
        return weighted_mean(each, used)


def weighted_mean(each: Tensor, weight: Tensor | None) -> Tensor:
    """Return the weighted mean of losses (B): Σ w_i l_i / Σ w_i, with the weights of all processes below.

    Distributed training averages gradients over the processes, each of which has its own samples.

    >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0]))
    tensor(1.5000)
    """
    if weight is None:
        return each.mean()
    total = weight.sum().to(each)
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if distributed and torch.is_grad_enabled():
        torch.distributed.all_reduce(total)
        total = total / torch.distributed.get_world_size()
    return (each * weight).sum() / total.clamp_min(torch.finfo(each.dtype).tiny)
