"""Reliability: how well the training data support a prediction, from the features behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from randomset._core.checks import ENOUGH, is_number, stratified
from randomset.belief.random_set import RandomSet
from randomset.belief.text import FAMILIAR
from randomset.errors import FileFormatError, RandomSetError, ShapeError

__all__ = [
    "MAX_ROWS",
    "MIN_VALIDATION",
    "Reliability",
    "ReliabilityKind",
    "check_enough",
    "check_max_bytes",
    "check_reliability",
    "reliability_from_spec",
    "reliability_from_state",
]

ReliabilityKind = Literal["auto", "neighbours", "gaussians"]

MIN_VALIDATION = ENOUGH
"""The smallest number of validation samples from which the scale of the distances can be estimated."""

MAX_ROWS = 4096
"""The largest number of training samples in the bank: more would cost more time than they add in accuracy."""

_MIN_ROWS, _ROWS_PER_CLASS = 1024, 64  # of the bank, as far as there are training samples

_PARTS = {
    "auto": ("neighbours", "gaussians", "length"),
    "neighbours": ("neighbours", "length"),
    "gaussians": ("gaussians", "length"),
}
_NEIGHBOURS = 10
_SHRINKAGE = 0.01  # of the covariance towards a multiple of the identity
_MAX_DEVIATIONS = 10.0  # of a standardised feature of a training sample
_DIRECT = 4096  # pairs of points and means whose distances are computed without a matrix product
_ONE_SIDED = 1.5  # features whose largest deviation from the mean is upwards by this factor
_SLOPE = 2.0
_LENGTH = 1.0  # weight of a length beyond its 95 % quantile
# The smallest r: below it, rounding would change the order of the classes. Tensors are faster than numbers.
_LOWEST = torch.tensor(1e-3, device="cpu")
_SPAN = 1 - float(_LOWEST)


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


def _buffers_named(*names: str) -> Any:
    """Return a property: these buffers of a module, as they are at that moment."""
    return property(lambda module: tuple(map(module._buffers.__getitem__, names)))


def _as(dtype: torch.dtype, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Convert tensors of one dtype to another."""
    return tensors if tensors[0].dtype == dtype else tuple(tensor.to(dtype) for tensor in tensors)


class Reliability(nn.Module):
    """A reliability r ∈ (0, 1] for each prediction, by which it is discounted: m' = r m + (1 − r) m_Θ.

    r = (0.001 + 0.999 n / (n + exp(doubt − offset))) n_c / (n_c + s) with n = √(n_c / n̄)

    doubt = 2 (max(0, z₁) + max(0, z₂) + max(0, z₃ − 1)²)

    Here n_c is the number of training samples of the predicted class, n̄ its mean over all classes, and s ≤ 2
    the prior weight of Walley's imprecise Dirichlet model: with few samples, no prediction is certain. The
    zⱼ = (dⱼ − median) / (95 % quantile − median), with the median and quantile of known validation inputs,
    compare distances dⱼ from the training data with usual ones. With h the features, shifted and each divided
    by its standard deviation, and h' = h / ‖h‖:

    - d₁, neighbours: the distance of h' to its 10th nearest neighbour in a bank of training samples
    - d₂, gaussians: the Mahalanobis distance of h' to the nearest class mean, with a shared covariance
    - d₃, length: log ‖h‖, which counts only beyond the 95 % quantile

    The origin of h is the mean of the training samples. Features behind a ReLU or GELU are skewed, and zero
    where nothing was found: if most features are, the lowest values are the origin instead. Relative to the
    mean, inputs that excite no feature would all lie in one direction, with other weak inputs near them.

    A distance can only lower r: an input that is farther by one of them, and not nearer by the others, is
    never more reliable.

    Few samples also widen the intervals. A part κ = min(1, 12 / √n_c) of each prediction is replaced by the
    least committed one with the same BetP: see `RandomSet.widen`.

    Args:
        kind: "auto" uses all three distances; "neighbours" and "gaussians" use that one and the length.
        in_features: F, the number of features.
        num_classes: N.
        rows: the number of training samples in the bank.
    """

    kinds = get_args(ReliabilityKind)
    centre: Tensor
    scale: Tensor
    middle: Tensor
    bank: Tensor
    half_squares: Tensor
    whitening: Tensor
    means: Tensor
    median: Tensor
    spread: Tensor
    allowed: Tensor
    power: Tensor
    weight: Tensor
    support: Tensor
    evidence: Tensor
    imprecision: Tensor
    offset: Tensor
    sharpening: Tensor
    familiar_from: Tensor
    number: Tensor

    def __init__(self, kind: str, in_features: int, num_classes: int, rows: int) -> None:
        super().__init__()
        if check_reliability(kind) == "none":
            raise RandomSetError("a module of reliability needs a kind", got=kind)
        self.kind, self.in_features, self.num_classes = kind, in_features, num_classes
        parts = _PARTS[kind]
        rows = rows if "neighbours" in parts else 0
        width, classes = (in_features, num_classes) if "gaussians" in parts else (0, 0)
        self.register_buffer("centre", torch.zeros(in_features))
        self.register_buffer("scale", torch.ones(in_features))
        self.register_buffer("middle", torch.zeros(in_features))  # the mean of h'
        self.register_buffer("bank", torch.zeros(rows, in_features))  # h' of training samples, minus the mean
        self.register_buffer("half_squares", torch.zeros(rows))  # ‖b‖² / 2 of each of them
        self.register_buffer("whitening", torch.zeros(width, width))
        self.register_buffer("means", torch.zeros(classes, width))
        self.register_buffer("median", torch.zeros(len(parts)))
        self.register_buffer("spread", torch.ones(len(parts)))
        # A length counts only beyond its 95 % quantile, where z = 1, and by its square.
        allowed = torch.tensor([0.0] * (len(parts) - 1) + [-1.0])
        self.register_buffer("allowed", allowed, persistent=False)
        self.register_buffer("power", 1 - allowed, persistent=False)
        weight = torch.tensor([_SLOPE] * (len(parts) - 1) + [_SLOPE * _LENGTH])
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("support", torch.zeros(num_classes))  # log n of each class
        self.register_buffer("evidence", torch.ones(num_classes))  # n_c / (n_c + s)
        self.register_buffer("imprecision", torch.zeros(num_classes))  # κ
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("sharpening", torch.ones(()))  # the temperature of beliefs to be discounted
        self.register_buffer("familiar_from", torch.tensor(FAMILIAR))  # the limit of the familiar
        # Identifies the kind in a state dict.
        self.register_buffer("number", torch.tensor(list(_PARTS).index(kind)))

    # -- prediction -----------------------------------------------------------------------------

    def distances(self, features: Tensor) -> Tensor:
        """Return the distances that the kind uses (B × J), larger for inputs less like the training data."""
        if features.shape[-1] != self.in_features:
            raise ShapeError(
                "features have the wrong shape for the reliability",
                got=str(tuple(features.shape)),
                expected=f"(B, {self.in_features})",
            )
        exact = torch.float64 if features.dtype == torch.float64 else torch.float32
        centre, scale, middle, bank, half_squares, whitening, means = _as(exact, self._learned)
        standard = (features.to(exact) - centre) / scale
        length = torch.linalg.vector_norm(standard, dim=-1, keepdim=True).clamp_min(1e-12)
        unit = standard / length - middle  # differences from the mean: the directions may all be similar
        columns = []
        if bank.numel():
            farness = nn.functional.linear(-unit, bank, half_squares)  # (‖u − b‖² − ‖u‖²) / 2
            nearest = farness.topk(min(_NEIGHBOURS, bank.shape[0]), -1, largest=False).values[..., -1:]
            square = torch.add(unit.square().sum(-1, keepdim=True), nearest, alpha=2)
            columns.append(square.clamp_min(0).sqrt())
        if means.numel():
            columns.append(_nearest_mean(unit @ whitening, means))
        return torch.cat([*columns, length.log()], -1)

    def doubt(self, distances: Tensor) -> Tensor:
        """Return the doubt (B) about predictions, from distances (B × J)."""
        median, spread, allowed, power, weight = _as(distances.dtype, self._scales)
        return torch.addcdiv(allowed, distances - median, spread).clamp_min(0) ** power @ weight

    def reliability_at(self, doubt: Tensor, offset: float | None = None) -> Tensor:
        """Return r (B) for a doubt (B) about a class with many samples, by default with the own offset."""
        start = self.offset if offset is None else offset
        return torch.add(_LOWEST, torch.sigmoid(start - doubt), alpha=_SPAN)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return r (B) for features (B × F) and predicted classes (B)."""
        return self._reliability_and_share(features, labels)[0]

    def weaken(self, answer: RandomSet, features: Tensor) -> RandomSet:
        """Widen and discount the predictions for features (B × F)."""
        reliability, share = self._reliability_and_share(features, answer.labels)
        return answer.weaken(share, reliability, self.familiar_from)

    def _reliability_and_share(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return r (B) and κ (B) for features (B × F) and predicted classes (B)."""
        distances = self.distances(features)
        support, evidence, share = (
            table.index_select(0, labels) for table in _as(distances.dtype, self._of_classes)
        )
        return self.reliability_at(self.doubt(distances) - support) * evidence, share

    # Looking several buffers up at once is faster than one attribute after another.
    _learned = _buffers_named("centre", "scale", "middle", "bank", "half_squares", "whitening", "means")
    _scales = _buffers_named("median", "spread", "allowed", "power", "weight")
    _of_classes = _buffers_named("support", "evidence", "imprecision")

    # -- fitting --------------------------------------------------------------------------------

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        features: Tensor,
        labels: Tensor,
        val_features: Tensor,
        *,
        num_classes: int,
        kind: str = "auto",
        max_bytes: int = 16 * 2**20,
    ) -> Reliability:
        """Fit to features (n × F) and class labels (n) of training samples, and to validation features.

        The offset is such that every validation sample has r > 0.98; `fit_reliability` lowers it as far as
        their likelihood and calibration allow.
        """
        check_max_bytes(max_bytes)
        _check(features, val_features)
        if "neighbours" in _PARTS[kind] and max_bytes < 4 * _NEIGHBOURS * features.shape[1]:
            raise RandomSetError(
                f"the bank of training samples cannot hold {_NEIGHBOURS} neighbours",
                got=f"max_bytes={max_bytes} for {features.shape[1]} features",
                expected=f"{4 * _NEIGHBOURS * features.shape[1]} or more",
                remedy='Pass a larger max_bytes, or reliability="gaussians"',
            )
        wanted = min(MAX_ROWS, max(_MIN_ROWS, _ROWS_PER_CLASS * num_classes))
        rows = min(len(features), wanted, max(1, int(max_bytes // (4 * features.shape[1]))))
        module = cls(kind, features.shape[1], num_classes, rows).to(features.device)
        exact = features.double()
        mean, lowest = exact.mean(0), exact.amin(0)
        centred = exact - mean
        deviation = centred.std(0, correction=0)
        # A feature that is nearly constant would dominate all others in the few samples where it differs.
        scale = torch.maximum(deviation, centred.abs().amax(0) / _MAX_DEVIATIONS)
        upwards = (exact.amax(0) - mean) / (mean - lowest).clamp_min(1e-12)
        module.centre.copy_(lowest if upwards[deviation > 0].median() > _ONE_SIDED else mean)
        module.scale.copy_(scale.clamp_min(max(1e-3 * float(deviation.mean()), 1e-12)))
        unit = nn.functional.normalize((exact - module.centre.double()) / module.scale.double(), dim=1)
        module.middle.copy_(unit.mean(0))
        unit -= module.middle.double()
        if len(module.bank):
            module.bank.copy_(unit[stratified(labels, rows)])
            module.half_squares.copy_(module.bank.square().sum(1) / 2)
        if len(module.means):
            _fit_gaussians(module, unit, labels)
        distances = module.distances(val_features).double()
        middle, high = distances.quantile(0.5, 0), distances.quantile(0.95, 0)
        module.median.copy_(middle)
        module.spread.copy_((high - middle).clamp_min(1e-6))
        module.offset.copy_(module.doubt(distances).max() + 4)
        return module

    # -- files ----------------------------------------------------------------------------------

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Accept states of earlier versions, which lack some buffers."""
        for name in ("evidence", "imprecision", "familiar_from", "middle"):
            state_dict.setdefault(prefix + name, getattr(self, name))
        if prefix + "half_squares" not in state_dict and prefix + "bank" in state_dict:
            state_dict[prefix + "half_squares"] = state_dict[prefix + "bank"].square().sum(1) / 2
        super()._load_from_state_dict(state_dict, prefix, *rest)

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


def _nearest_mean(points: Tensor, means: Tensor) -> Tensor:
    """Return the distance of points (B × F) to the nearest of some means (N × F), as a column (B × 1)."""
    if not torch.compiler.is_compiling() and points.shape[0] * means.shape[0] <= _DIRECT:
        return torch.cdist(points, means, compute_mode="donot_use_mm_for_euclid_dist").amin(-1, keepdim=True)
    squares = points.square().sum(-1, keepdim=True) - 2 * points @ means.T + means.square().sum(-1)
    return squares.amin(-1, keepdim=True).clamp_min(0).sqrt()


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


def check_max_bytes(max_bytes: Any) -> None:
    """Raise unless the size of a bank is a number of bytes."""
    if not is_number(max_bytes):
        raise RandomSetError(
            "max_bytes must be a positive number",
            got=repr(max_bytes),
            expected="the largest size of the bank of training samples in bytes, such as 16 * 2**20",
        )


def check_enough(samples: int) -> None:
    """Raise if a number of validation samples is too small to fit a reliability."""
    if samples < MIN_VALIDATION:
        raise RandomSetError(
            "too few validation samples to fit the reliability",
            got=samples,
            expected=f"{MIN_VALIDATION} or more",
            remedy='Hold out more, or pass reliability="none"',
        )


def _check(features: Tensor, val_features: Tensor) -> None:
    check_enough(len(val_features))
    if len(features) < 2:
        raise RandomSetError(
            "too few training samples to fit the reliability",
            got=len(features),
            expected="2 or more, better some of each class",
            remedy="Pass the data that the network was trained on",
        )
    for name, values in (("training", features), ("validation", val_features)):
        if broken := int((~values.isfinite()).any(1).sum()):
            raise RandomSetError(
                f"the features of the {name} samples are not finite",
                got=f"{broken} of {len(values)} samples with NaN or infinity",
                expected="finite numbers",
                remedy="Check these samples; if all are affected, the network has diverged",
            )
    if not bool((features != features[0]).any()):
        raise RandomSetError(
            "the features of all training samples are equal",
            got=f"{len(features)} samples",
            expected="features that differ between inputs",
            remedy="Check that the backbone is trained and its inputs differ",
        )
