"""Random sets in files: one safetensors file, the budget as JSON in its header. Never pickle."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from randomset.belief.budget import Budget
from randomset.belief.labels import check_distribution
from randomset.belief.repair import Validity
from randomset.errors import FileFormatError, RandomSetError

if TYPE_CHECKING:
    from randomset.belief.random_set import RandomSet

__all__ = ["load", "replacing", "save"]

_TENSORS = ("mass", "negative", "excess", "repaired")


def save(random_set: RandomSet, path: Path) -> Path:
    """Write a random set; a file that is there already is replaced only once the new one is whole."""
    from safetensors.torch import save_file

    validity = random_set.validity
    tensors = (random_set.mass, validity.negative, validity.excess, validity.repaired)
    stored = {
        name: tensor.detach().cpu().contiguous() for name, tensor in zip(_TENSORS, tensors, strict=True)
    }
    header = {"format": "randomset.random_set", "version": "1", "budget": random_set.budget.to_json()}
    with replacing(path) as temporary:
        save_file(stored, temporary, metadata=header)
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file to write to; it takes the place of `path` once it is whole, or vanishes."""
    if not path.parent.is_dir() or path.is_dir():
        raise RandomSetError(
            "this is no place for a file" if path.is_dir() else "the folder does not exist",
            got=str(path if path.is_dir() else path.parent),
            remedy="Give the path of a file in a folder that exists",
        )
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise RandomSetError(
            "the folder cannot be written to", got=f"{path.parent} ({error.strerror})"
        ) from error
    os.close(handle)
    try:
        yield Path(temporary)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # a temporary file is its owner's alone
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def load(path: Path) -> tuple[Tensor, Budget, Validity]:
    """Read the parts of a random set, and refuse what is not one."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        wrong = "this is a folder, not a file" if path.is_dir() else "there is no such file"
        raise FileFormatError(wrong, got=str(path))
    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != "randomset.random_set":
                raise FileFormatError(
                    "the file holds no random set",
                    got=f"{path.name} with format {header.get('format')!r}",
                    expected="a file that RandomSet.save wrote",
                )
            if header.get("version") != "1" or set(file.keys()) != set(_TENSORS):
                raise FileFormatError(
                    "the random set was written by another version",
                    got=f"version {header.get('version')!r} with {sorted(file.keys())}",
                    expected=f"version '1' with {sorted(_TENSORS)}",
                )
            mass, *account = (file.get_tensor(name) for name in _TENSORS)
    except PermissionError as error:
        raise FileFormatError("the file may not be read", got=str(path)) from error
    except SafetensorError as error:
        raise FileFormatError("the file is not safetensors", got=f"{path.name}: {error}") from error
    budget = Budget.from_json(header.get("budget", ""))
    if not budget.has_universal_set or mass.dim() == 0 or mass.shape[-1] != len(budget):
        raise FileFormatError(
            "the masses do not fit the budget in the same file",
            got=str(tuple(mass.shape)),
            expected=f"(…, {len(budget)})",
        )
    if any(part.shape != mass.shape[:-1] for part in account):
        raise FileFormatError("the validity does not fit the masses in the same file", got=path.name)
    check_distribution(mass, "masses")
    return mass, budget, Validity(*account)
