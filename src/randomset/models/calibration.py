"""Temperatures that soften or sharpen predictions after training; stored as a submodule of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from randomset.belief.operators import BudgetOperators
from randomset.belief.random_set import RandomSet
from randomset.belief.repair import Repair
from randomset.belief.sums import ONE
from randomset.errors import FileFormatError, RandomSetError

__all__ = [
    "BeliefTemperature",
    "Calibration",
    "PignisticTemperature",
    "SoftmaxTemperature",
    "calibration_from_spec",
    "calibration_from_state",
]


class Calibration(nn.Module):
    """Turns belief logits into a random set; `temperature` holds the fitted values."""

    temperature: Tensor
    kind: Tensor

    def __init__(self, temperature: Sequence[float] | float) -> None:
        super().__init__()
        values = torch.as_tensor(temperature, dtype=torch.float32).flatten()
        if not values.numel() or not ((values > 0) & values.isfinite()).all():
            raise RandomSetError("temperatures must be positive", got=values.tolist())
        self.register_buffer("temperature", values)
        # In the state dict, so that loading the weights into another network also restores the calibration.
        self.register_buffer("kind", torch.tensor(_KINDS.index(type(self).__name__), dtype=torch.uint8))

    @property
    def spec(self) -> dict[str, Any]:
        """The kind and the temperatures, as stored in files."""
        return {"kind": type(self).__name__, "temperature": self.temperature.tolist()}

    def random_set(self, logits: Tensor, operators: BudgetOperators, repair: Repair = "clip") -> RandomSet:
        """Return the calibrated prediction."""
        raise NotImplementedError

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Accept states of earlier versions, which lack `kind`."""
        state_dict.setdefault(f"{prefix}kind", self.kind)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:  # noqa: D102
        return ", ".join(f"{value:.3f}" for value in self.temperature.tolist())


class BeliefTemperature(Calibration):
    """Divide belief logits by a temperature: Bel(A) = sigmoid(z(A) / T), or T(|A|), one per cardinality.

    With several temperatures, the i-th applies to sets with i classes and the last to all larger sets.

    >>> from randomset import Budget
    >>> operators = BudgetOperators(Budget.singletons("abc"))
    >>> hot = BeliefTemperature(2.0).random_set(torch.tensor([4.0, -4.0, -4.0]), operators)
    >>> hot.pignistic
    tensor([0.7870, 0.1065, 0.1065])
    """

    def random_set(self, logits: Tensor, operators: BudgetOperators, repair: Repair = "clip") -> RandomSet:
        """Return the prediction for the scaled logits."""
        temperature = self.temperature.to(logits.dtype)
        if len(temperature) > 1:
            temperature = temperature[(operators.sizes.long() - 1).clamp_max(len(temperature) - 1)]
        return RandomSet.from_logits(logits / temperature, operators, repair)


class PignisticTemperature(Calibration):
    """Change the confidence to that of BetP^(1/T) while keeping the order of the classes.

    Where the new confidence p' of the predicted class c is lower than p = BetP(c), all masses are discounted
    and Θ gets the rest; where it is higher, {c} gets a part of every mass:

    m' = r m + (1 − r) m_Θ with r = (p' − 1/N) / (p − 1/N)

    m' = (1 − s) m + s m_c with s = (p' − p) / (1 − p)

    With two temperatures, the first one divides the belief logits before, as in `BeliefTemperature`.

    >>> from randomset import Budget
    >>> operators = BudgetOperators(Budget.singletons("abc"))
    >>> logits = torch.tensor([2.0, -1.0, -2.0])
    >>> RandomSet.from_logits(logits, operators).pignistic
    tensor([0.6941, 0.2119, 0.0939])
    >>> PignisticTemperature(2.0).random_set(logits, operators).pignistic
    tensor([0.5207, 0.2703, 0.2090])
    """

    def __init__(self, temperature: Sequence[float] | float) -> None:
        super().__init__(temperature)
        if len(self.temperature) > 2:
            raise RandomSetError(
                "expected one temperature for BetP, and perhaps one for the beliefs",
                got=self.temperature.tolist(),
                remedy="BeliefTemperature takes one per cardinality",
            )
        self._set_direction()

    def _set_direction(self) -> None:
        # Whether p' ≤ p, which is the case for all predictions or for none: only one formula is computed.
        self.lowers = bool(self.temperature[-1] > 1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._set_direction()

    def random_set(self, logits: Tensor, operators: BudgetOperators, repair: Repair = "clip") -> RandomSet:
        """Return the prediction with adjusted confidence."""
        if len(self.temperature) == 2:
            logits = logits / self.temperature[0]
        return self.adjusted(RandomSet.from_logits(logits, operators, repair))

    def adjusted(self, plain: RandomSet) -> RandomSet:
        """Return a random set with adjusted confidence; its reliability and other numbers stay."""
        mass, betp, temperature = plain.mass, plain.pignistic, self.temperature[-1]
        tiny = torch.finfo(betp.dtype).tiny
        moved = (betp.clamp_min(tiny).log() / temperature).softmax(-1)
        old, top = betp.max(-1, keepdim=True)
        new = moved.gather(-1, top)
        if self.lowers:
            even = 1 / betp.shape[-1]
            above_even = old - even
            # Near uniform beliefs, use the limit: the quotient would be dominated by rounding errors.
            quotient = (new - even) / above_even.clamp_min(tiny)
            keep = torch.where(above_even > 1e-4, quotient, temperature.reciprocal()).clamp(0, 1)
            mass = keep * mass
            mass[..., -1:] += ONE - keep
        else:
            keep = ((ONE - new) / (ONE - old).clamp_min(tiny)).clamp(0, 1)
            mass = (keep * mass).scatter_add(-1, top, ONE - keep)  # singletons come first
        return plain.with_mass(mass, plain.reliability if plain.is_discounted else None)


class SoftmaxTemperature(Calibration):
    """Turn class logits into masses of the singletons: m({c}) = softmax(z / T)(c).

    >>> from randomset import Budget
    >>> operators = BudgetOperators(Budget.singletons("abc"))
    >>> SoftmaxTemperature(2.0).random_set(torch.tensor([4.0, 0.0, 0.0]), operators).mass
    tensor([0.7870, 0.1065, 0.1065, 0.0000])
    """

    def random_set(self, logits: Tensor, operators: BudgetOperators, repair: Repair = "clip") -> RandomSet:
        """Return the softmax of the scaled logits; it needs no repair."""
        precise = logits if logits.dtype == torch.float64 else logits.float()
        return RandomSet.from_mass((precise / self.temperature.to(precise)).softmax(-1), operators)


def calibration_from_spec(spec: Any) -> Calibration | None:
    """Create a calibration from its `spec`."""
    if spec is None:
        return None
    try:
        return _CLASSES[_KINDS.index(spec["kind"])](spec["temperature"])
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise FileFormatError("unknown calibration in the file", got=str(spec)[:80]) from None


def calibration_from_state(
    state: Mapping[str, Tensor], prefix: str, current: Calibration | None
) -> Calibration | None:
    """Return a calibration that fits a state dict: the current one if possible, None if it has none."""
    temperature, kind = state.get(f"{prefix}temperature"), state.get(f"{prefix}kind")
    if temperature is None:
        return None
    same_kind = current is not None and (kind is None or int(kind) == int(current.kind))
    if same_kind and current is not None and current.temperature.shape == temperature.shape:
        return current
    number = 0 if kind is None else int(kind)
    return _CLASSES[min(number, len(_CLASSES) - 1)](torch.ones(temperature.numel()).tolist())


_CLASSES: tuple[type[Calibration], ...] = (BeliefTemperature, PignisticTemperature, SoftmaxTemperature)
_KINDS = tuple(cls.__name__ for cls in _CLASSES)
