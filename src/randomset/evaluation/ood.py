"""Out-of-distribution detection by an uncertainty score, and the threshold for deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from randomset.errors import RandomSetError

__all__ = ["Detection", "detection", "rank_average"]


@dataclass(frozen=True)
class Detection:
    """How well a score separates unknown inputs (the positive class) from known ones.

    auroc: probability that an unknown input scores higher than a known one
    auprc: average precision with unknown as the positive class; `auprc_known` with known as positive
    fpr95: false positive rate at a true positive rate of 95 %
    error: detection error, the smallest mean of false positive and false negative rate over all thresholds
    """

    auroc: float
    auprc: float
    auprc_known: float
    fpr95: float
    error: float
    known: tuple[float, float]
    """Mean and standard deviation of the score on known inputs."""
    unknown: tuple[float, float]


def detection(known: Tensor, unknown: Tensor) -> Detection:
    """Evaluate a score (higher means more uncertain) on known (n) and unknown (m) inputs.

    >>> result = detection(torch.tensor([0.1, 0.2, 0.4]), torch.tensor([0.3, 0.9]))
    >>> round(result.auroc, 4), round(result.fpr95, 4)
    (0.8333, 0.3333)
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    for name, score in (("known", known), ("unknown", unknown)):
        if score.dim() != 1 or not len(score) or not score.isfinite().all():
            raise RandomSetError(
                f"invalid scores of the {name} inputs",
                got=f"shape {tuple(score.shape)}",
                expected="a non-empty 1-D tensor of finite numbers",
            )
    both = torch.cat((known, unknown)).double().numpy()
    target = np.r_[np.zeros(len(known)), np.ones(len(unknown))]
    false, true, _ = roc_curve(target, both, drop_intermediate=False)
    return Detection(
        auroc=float(roc_auc_score(target, both)),
        auprc=float(average_precision_score(target, both)),
        auprc_known=float(average_precision_score(1 - target, -both)),
        fpr95=float(false[true >= 0.95].min()),
        error=float(((false + 1 - true) / 2).min()),
        known=_moments(known),
        unknown=_moments(unknown),
    )


def rank_average(known: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    """Average several scores by their ranks among known inputs: (n) each → (m), in [0, 1].

    Each score is replaced by the fraction of known (validation) inputs below it, so scales do not matter.

    >>> rank_average({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([10.0, 20.0])},
    ...              {"a": torch.tensor([1.5]), "b": torch.tensor([30.0])})
    tensor([0.7500], dtype=torch.float64)
    """
    shares = []
    for name, reference in known.items():
        ordered = reference.double().sort().values
        low = torch.searchsorted(ordered, other[name].double())
        high = torch.searchsorted(ordered, other[name].double(), right=True)
        shares.append((low + high) / (2 * len(ordered)))
    return torch.stack(shares).double().mean(0)


def _moments(score: Tensor) -> tuple[float, float]:
    return float(score.double().mean()), float(score.double().std(correction=0))
