"""Reliability: how well the training data support a prediction, from the features behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from randomset.errors import FileFormatError, RandomSetError, ShapeError

__all__ = [
    "MIN_VALIDATION",
    "Reliability",
    "ReliabilityKind",
    "check_reliability",
    "reliability_from_spec",
    "reliability_from_state",
    "stratified",
]

ReliabilityKind = Literal["auto", "neighbours", "gaussians"]

MIN_VALIDATION = 20
"""The smallest number of validation samples from which the scale of the distances can be estimated."""

_PARTS = {
    "auto": ("neighbours", "gaussians", "evidence", "length"),
    "neighbours": ("neighbours", "length"),
    "gaussians": ("gaussians", "length"),
}
_NEIGHBOURS = 10
_SHRINKAGE = 0.01  # of the covariance towards a multiple of the identity
_SLOPE = 2.0
_LOWEST = 1e-3  # the smallest r: below it, rounding would change the order of the classes


def check_reliability(kind: str | None) -> str:
    """Return the name of a kind of reliability, or "none".

    >>> check_reliability("gaussians"), check_reliability(None)
    ('gaussians', 'none')
    """
    kind = "none" if kind is None else kind
    if kind not in (*_PARTS, "none"):
        raise RandomSetError(
            "unknown kind of reliability", got=kind, expected=f"one of {', '.join(_PARTS)}, none"
        )
    return kind


class Reliability(nn.Module):
    """A reliability r ∈ (0, 1] for each prediction, by which it is discounted: m' = r m + (1 − r) m_Θ.

    r = 0.001 + 0.999 / (1 + exp(2 (s − offset)))

    s = Σⱼ max(0, zⱼ) with zⱼ = (dⱼ − median) / (95 % quantile − median)

    Median and quantile are those of known validation inputs. The dⱼ grow with the distance of an input from
    the training data. With h the features, each standardised, and u = h / ‖h‖:

    - neighbours: the distance of u to its 10th nearest neighbour in a bank of training samples
    - gaussians: the Mahalanobis distance of u to the nearest class mean, with a shared covariance
    - evidence: the largest logit of a class, negated
    - length: log ‖h‖, which counts only beyond the 95 % quantile

    Every dⱼ can only lower r: an input that is farther by one of them, and not nearer by the others, is never
    more reliable.

    Args:
        kind: "auto" uses all four distances; "neighbours" and "gaussians" use that one and the length.
        in_features: F, the number of features.
        num_classes: N.
        rows: the number of training samples in the bank.
    """

    kinds = get_args(ReliabilityKind)
    centre: Tensor
    scale: Tensor
    bank: Tensor
    whitening: Tensor
    means: Tensor
    median: Tensor
    spread: Tensor
    offset: Tensor
    number: Tensor

    def __init__(self, kind: str, in_features: int, num_classes: int, rows: int) -> None:
        super().__init__()
        if check_reliability(kind) == "none":
            raise RandomSetError("a module of reliability needs a kind", got=kind)
        self.kind, self.in_features, self.num_classes = kind, in_features, num_classes
        parts = _PARTS[kind]
        rows = rows if "neighbours" in parts else 0
        width, classes = (in_features, num_classes) if "gaussians" in parts else (0, 0)
        shapes: dict[str, tuple[int, ...]] = {
            **{"centre": (in_features,), "scale": (in_features,), "bank": (rows, in_features)},
            **{"whitening": (width, width), "means": (classes, width)},
            **{"median": (len(parts),), "spread": (len(parts),), "offset": ()},
        }
        for name, shape in shapes.items():
            self.register_buffer(
                name, torch.ones(shape) if name in ("scale", "spread") else torch.zeros(shape)
            )
        self.register_buffer(
            "number", torch.tensor(list(_PARTS).index(kind))
        )  # identifies the kind in a state

    # -- prediction -----------------------------------------------------------------------------

    def distances(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return the distances that the kind uses (B × J), larger for inputs less like the training data."""
        if features.shape[-1] != self.in_features:
            raise ShapeError(
                "features have the wrong shape for the reliability",
                got=str(tuple(features.shape)),
                expected=f"(B, {self.in_features})",
            )
        exact = torch.float64 if features.dtype == torch.float64 else torch.float32
        standard = (features.to(exact) - self.centre.to(exact)) / self.scale.to(exact)
        length = standard.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        unit = standard / length
        columns = []
        for part in _PARTS[self.kind]:
            if part == "neighbours":
                nearest = (unit @ self.bank.to(exact).T).topk(min(_NEIGHBOURS, len(self.bank)), -1).values
                columns.append((2 - 2 * nearest[..., -1]).clamp_min(0).sqrt())
            elif part == "gaussians":
                columns.append(_nearest_mean(unit @ self.whitening.to(exact), self.means.to(exact)))
            elif part == "evidence":
                columns.append(-logits[..., : self.num_classes].to(exact).amax(-1))
            else:
                columns.append(length.squeeze(-1).log())
        return torch.stack(columns, -1)

    def strangeness(self, distances: Tensor) -> Tensor:
        """Return s (B), the sum of the standardised distances (B × J) above those of usual inputs."""
        z = (distances - self.median.to(distances.dtype)) / self.spread.to(distances.dtype)
        start = torch.tensor([float(part == "length") for part in _PARTS[self.kind]], device=z.device)
        return (z - start.to(z.dtype)).clamp_min(0).sum(-1)

    def forward(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return r (B) for features (B × F) and logits (B × outputs, those of the classes first)."""
        return self.reliability_at(self.strangeness(self.distances(features, logits)))

    def reliability_at(self, strangeness: Tensor, offset: float | None = None) -> Tensor:
        """Return r (B) for s (B), with the module's offset or another one."""
        start = self.offset.to(strangeness.dtype) if offset is None else offset
        return _LOWEST + (1 - _LOWEST) * torch.sigmoid(_SLOPE * (start - strangeness))

    # -- fitting --------------------------------------------------------------------------------

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        features: Tensor,
        labels: Tensor,
        val_features: Tensor,
        val_logits: Tensor,
        *,
        num_classes: int,
        kind: str = "auto",
        max_bytes: int = 16 * 2**20,
    ) -> Reliability:
        """Fit to features (n × F) and class labels (n) of training samples, and to validation samples.

        The offset is such that all validation samples have r > 0.98; `fit_reliability` lowers it as far as
        their likelihood and calibration allow.
        """
        _check(features, val_features, kind)
        rows = min(len(features), max(1, max_bytes // (4 * features.shape[1])))
        module = cls(kind, features.shape[1], num_classes, rows).to(features.device)
        exact = features.double()
        deviation = exact.std(0, correction=0)
        module.centre.copy_(exact.mean(0))
        module.scale.copy_(deviation.clamp_min(max(1e-3 * float(deviation.mean()), 1e-12)))
        unit = nn.functional.normalize((exact - module.centre.double()) / module.scale.double(), dim=1)
        if len(module.bank):
            module.bank.copy_(unit[stratified(labels, rows)])
        if len(module.means):
            _fit_gaussians(module, unit, labels)
        distances = module.distances(val_features, val_logits).double()
        middle, high = distances.quantile(0.5, 0), distances.quantile(0.95, 0)
        module.median.copy_(middle)
        module.spread.copy_((high - middle).clamp_min(1e-6))
        module.offset.copy_(module.strangeness(distances).max() + 2)
        return module

    # -- files ----------------------------------------------------------------------------------

    @property
    def spec(self) -> dict[str, Any]:
        """JSON-serialisable arguments from which `reliability_from_spec` creates an empty module."""
        return {"kind": self.kind, "rows": len(self.bank)}

    def extra_repr(self) -> str:  # noqa: D102
        return f"{self.kind}, {len(self.bank)} samples, offset {float(self.offset):.2f}"


def reliability_from_spec(
    spec: Any, in_features: int, num_classes: int, available: int
) -> Reliability | None:
    """Create an empty module from its `spec`, for at most `available` numbers in the file."""
    if spec is None:
        return None
    rows = spec.get("rows") if isinstance(spec, dict) else None
    if (
        not isinstance(rows, int)
        or not 0 <= rows * in_features <= available
        or spec.get("kind") not in _PARTS
    ):
        raise FileFormatError("unknown reliability in the file", got=str(spec)[:80])
    return Reliability(spec["kind"], in_features, num_classes, rows)


def reliability_from_state(
    state: Mapping[str, Tensor], prefix: str, in_features: int, num_classes: int
) -> Reliability | None:
    """Return an empty module that fits a state dict, None if it has no reliability."""
    bank, number = state.get(f"{prefix}bank"), state.get(f"{prefix}number")
    if bank is None or number is None:
        return None
    return Reliability(list(_PARTS)[int(number)], in_features, num_classes, len(bank))


def stratified(labels: Tensor, rows: int) -> Tensor:
    """Return the indices of at most `rows` samples, spread evenly over their classes, in order."""
    if len(labels) <= rows:
        return torch.arange(len(labels), device=labels.device)
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    counts = labels.unique(return_counts=True)[1]
    rank = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts).repeat_interleave(
        counts
    )
    return by_class[rank.argsort(stable=True)[:rows]].sort().values


def _nearest_mean(points: Tensor, means: Tensor) -> Tensor:
    """Return the distance of points (B × F) to the nearest of some means (N × F)."""
    squares = points.square().sum(-1, keepdim=True) - 2 * points @ means.T + means.square().sum(-1)
    return squares.amin(-1).clamp_min(0).sqrt()


def _fit_gaussians(module: Reliability, unit: Tensor, labels: Tensor) -> None:
    """Store the class means and the whitening of their shared covariance."""
    indicators = nn.functional.one_hot(labels, module.num_classes).to(unit)
    counts = indicators.sum(0)
    means = indicators.T @ unit / counts.clamp_min(1)[:, None]
    rest = unit - means[labels]
    covariance = rest.T @ rest / len(rest)
    covariance.diagonal().add_(_SHRINKAGE * float(covariance.diagonal().mean()) + 1e-12)
    values, vectors = torch.linalg.eigh(covariance)
    whitening = vectors / values.clamp_min(1e-12).sqrt()
    present = counts > 0  # a class without samples takes another's place: no input is near it
    means[~present] = means[present][0]
    module.whitening.copy_(whitening)
    module.means.copy_(means @ whitening)


def _check(features: Tensor, val_features: Tensor, kind: str) -> None:
    if len(val_features) < MIN_VALIDATION:
        raise RandomSetError(
            "too few validation samples to fit the reliability",
            got=len(val_features),
            expected=f"{MIN_VALIDATION} or more",
            remedy='Hold out more, or pass reliability="none"',
        )
    for name, values in (("training", features), ("validation", val_features)):
        if not values.isfinite().all():
            raise RandomSetError(f"the features of the {name} samples are not finite", got="NaN or infinity")
    if len(features) < 2 or not bool((features != features[0]).any()):
        raise RandomSetError(
            "the features of all training samples are equal",
            got=f"{len(features)} samples",
            expected="features that differ between inputs",
            remedy="Check that the backbone is trained and its inputs differ",
        )
