"""Weights in files: safetensors, or what torch.save wrote of tensors alone; never a pickle that runs code."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from randomset.errors import FileFormatError

__all__ = ["check_finite", "few_of", "fill", "read_weights"]

_WRAPPERS = ("state_dict", "model_state_dict", "model", "model_ema", "net")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a safetensors file or a torch file, of which nothing is executed."""
    if not path.is_file():
        raise FileFormatError(
            "there is no file of weights",
            got=str(path),
            expected="a .safetensors file or one of torch.save, or the word default or none",
        )
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise FileFormatError(
                "the file is not whole, or no safetensors",
                got=f"{path}: {error}",
                remedy="Fetch it again",
            ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on formats that are refused anyway
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile file makes torch say
        strange = re.search(r"GLOBAL ([\w.]+)", str(error))
        found = f"it calls {strange[1]} when it is read" if strange else "it is damaged, or of another kind"
        raise FileFormatError(
            "the file holds no weights, or more than weights",
            got=f"{path}: {found}",
            expected="tensors by name, as torch.save(model.state_dict(), …) or safetensors write them",
            remedy="Files that run code are refused: save the state dict alone"
            if strange
            else "Fetch it again",
        ) from None
    for name in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(t, Tensor) for t in content.values())
    ):
        raise FileFormatError(
            "the file holds no weights by name",
            got=f"{path} with {'an empty ' if content == {} else ''}{type(content).__name__}",
            expected="tensors by name, as model.state_dict() gives them",
        )
    prefix = "module."  # of networks that were trained on several devices
    if all(name.startswith(prefix) for name in content):
        content = {name[len(prefix) :]: tensor for name, tensor in content.items()}
    return content


def fill(
    model: nn.Module, state: dict[str, Tensor], classifier: str | tuple[str, ...] | None, origin: str
) -> str:
    """Load weights into a model but for its classifier, and say how they were matched: "" if by name.

    A classifier of other classes in the file is of no use and left out. Where all names differ but the shapes
    are the same, one by one and in order, the file comes from another library's version of the architecture,
    and the order decides.
    """
    check_finite(state, origin)
    own = model.state_dict()
    ours = {name: tensor for name, tensor in own.items() if not _belongs(name, classifier)}
    theirs = {name: tensor for name, tensor in state.items() if not _belongs(name, classifier)}
    remark = ""
    if not set(ours) & set(theirs):
        every = list(state.values())
        if [tuple(t.shape) for t in own.values()] == [tuple(t.shape) for t in every]:
            theirs = {name: tensor for name, tensor in zip(own, every, strict=True) if name in ours}
            remark = "the names in the file are others; its tensors were matched by their order"
    missing, strange = set(ours) - set(theirs), set(theirs) - set(ours)
    counters = {name for name in ours if name.endswith("num_batches_tracked")}
    missing -= counters
    other = [name for name in set(ours) & set(theirs) if ours[name].shape != theirs[name].shape]
    if missing or strange or other:
        parts = [
            f"{len(names)} {what} ({few_of(names)})"
            for what, names in (
                ("tensors of the network are missing", missing),
                ("tensors are unknown to it", strange),
                ("have another shape", other),
            )
            if names
        ]
        raise FileFormatError(
            "the weights are those of another architecture",
            got=f"{origin}: {'; '.join(parts)}",
            expected=f"the {len(set(ours) - counters)} tensors of {type(model).__name__}",
        )
    model.load_state_dict({name: theirs.get(name, own[name]) for name in ours}, strict=False)
    return remark


def check_finite(state: dict[str, Tensor], origin: str) -> None:
    """Refuse weights of a training that went wrong."""
    bad = [name for name, t in state.items() if t.is_floating_point() and not t.isfinite().all()]
    if bad:
        raise FileFormatError(
            "the weights are not all finite numbers", got=f"{origin}: {few_of(bad)}", expected="other weights"
        )


def _belongs(name: str, part: str | tuple[str, ...] | None) -> bool:
    parts = (part,) if isinstance(part, str) else part or ()
    return any(name == one or name.startswith(f"{one}.") for one in parts)


def few_of(names: Iterable[Any], shown: int = 3) -> str:
    """Name the first of them, and how many more there are."""
    found = sorted(map(str, names))
    return ", ".join(found[:shown]) + (f" and {len(found) - shown} more" if len(found) > shown else "")
