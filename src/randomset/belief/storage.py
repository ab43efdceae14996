"""Storage of random sets: safetensors with the budget in the header."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from randomset._core.files import check_version, save_tensors
from randomset.belief.budget import Budget
from randomset.belief.repair import Validity
from randomset.belief.text import FAMILIAR
from randomset.belief.transforms import check_distribution
from randomset.errors import FileFormatError

if TYPE_CHECKING:
    from randomset.belief.random_set import RandomSet

__all__ = ["load", "save"]

_FORMAT, _VERSION = "randomset.random_set", "1"
_TENSORS = ("mass", "negative", "excess", "repaired")
_OPTIONAL = {"reliability": 1.0, "disagreement": math.inf}  # with their largest possible values


def save(random_set: RandomSet, path: Path) -> Path:
    """Write a random set, atomically."""
    validity = random_set.validity
    tensors = (random_set.mass, validity.negative, validity.excess, validity.repaired)
    header = {"format": _FORMAT, "version": _VERSION, "budget": random_set.budget.to_json()}
    named = dict(zip(_TENSORS, tensors, strict=True))
    if random_set.is_discounted:
        named["reliability"] = random_set.reliability
        header["familiar_from"] = repr(random_set.familiar_from)
    if random_set.disagreement is not None:
        named["disagreement"] = random_set.disagreement
    save_tensors(named, path, header)
    return path


def load(path: Path) -> tuple[Tensor, Budget, Validity, Tensor | None, float, Tensor | None]:
    """Read and check the parts of a random set."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        message = "expected a file, got a folder" if path.is_dir() else "no such file"
        raise FileFormatError(message, got=str(path))
    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != _FORMAT:
                raise FileFormatError(
                    "the file does not contain a random set",
                    got=f"{path.name} with format {header.get('format')!r}",
                    expected="a file written by RandomSet.save",
                )
            check_version(header.get("version"), _VERSION, "the random set", path.name)
            if set(file.keys()) - set(_OPTIONAL) != set(_TENSORS):
                raise FileFormatError(
                    "the random set has missing or unexpected tensors",
                    got=str(sorted(file.keys())),
                    expected=str(sorted(_TENSORS)),
                )
            mass, *validity = (file.get_tensor(name) for name in _TENSORS)
            optional = {name: file.get_tensor(name) for name in _OPTIONAL if name in file.keys()}  # noqa: SIM118
    except PermissionError as error:
        raise FileFormatError("no permission to read the file", got=str(path)) from error
    except SafetensorError as error:
        raise FileFormatError("the file is not safetensors", got=f"{path.name}: {error}") from error
    budget = Budget.from_json(header.get("budget", ""))
    if not budget.has_universal_set or mass.dim() == 0 or mass.shape[-1] != len(budget):
        raise FileFormatError(
            "the masses do not match the budget in the file",
            got=str(tuple(mass.shape)),
            expected=f"(…, {len(budget)})",
        )
    if any(part.shape != mass.shape[:-1] for part in validity):
        raise FileFormatError("the validity does not match the masses in the file", got=path.name)
    for name, values in optional.items():
        if values.shape != mass.shape[:-1] or not ((values >= 0) & (values <= _OPTIONAL[name])).all():
            raise FileFormatError(f"the {name} does not match the masses in the file", got=path.name)
    check_distribution(mass, "masses")
    limit = _limit(header.get("familiar_from"), path)
    return mass, budget, Validity(*validity), optional.get("reliability"), limit, optional.get("disagreement")


def _limit(text: str | None, path: Path) -> float:
    """Parse the smallest reliability of a familiar input, which earlier versions did not store."""
    try:
        limit = FAMILIAR if text is None else float(text)
    except ValueError:
        limit = math.nan
    if not 0 <= limit <= 1:
        raise FileFormatError(
            "familiar_from is out of range", got=f"{text} in {path.name}", expected="0 to 1"
        )
    return limit
