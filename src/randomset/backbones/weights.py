"""Weights in files: safetensors, or tensors written by torch.save; never a pickle that could run code."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from randomset.errors import FileFormatError

__all__ = ["check_finite", "load_weights_into", "mismatched_weights", "read_weights"]

_WRAPPERS = ("state_dict", "model_state_dict", "model", "model_ema", "net")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a safetensors or torch file, without executing anything in it."""
    if not path.is_file():
        raise FileFormatError(
            "weights file not found",
            got=str(path),
            expected="a .safetensors file, a file written by torch.save, or the word default or none",
        )
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise FileFormatError(
                "not a complete safetensors file", got=f"{path}: {error}", remedy="Download it again"
            ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats that are rejected anyway
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged and malicious files raise many different types
        call = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise FileFormatError(
            "the file does not contain only weights",
            got=f"{path}: " + (f"loading it would call {call[1]}" if call else "damaged or unknown format"),
            expected="named tensors, as written by torch.save(model.state_dict(), …) or safetensors",
            remedy="Files that run code are rejected: save the state dict alone"
            if call
            else "Download it again",
        ) from None
    for name in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    is_dict = isinstance(content, dict)
    if not is_dict or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise FileFormatError(
            "the file does not contain named tensors",
            got=f"{path} with {'an empty ' if content == {} else ''}{type(content).__name__}",
            expected="named tensors, as returned by model.state_dict()",
        )
    prefix = "module."  # from DataParallel
    if all(name.startswith(prefix) for name in content):
        content = {name[len(prefix) :]: tensor for name, tensor in content.items()}
    return content


def load_weights_into(
    model: nn.Module, state: dict[str, Tensor], classifier: str | tuple[str, ...] | None, origin: str
) -> str:
    """Load weights into a model, except for its classifier, and return a remark unless names matched.

    If no name matches but all shapes agree in order, the file comes from another implementation of the
    architecture, and tensors are matched by order.
    """
    check_finite(state, origin)
    own = model.state_dict()
    wanted = {name: tensor for name, tensor in own.items() if not _is_within(name, classifier)}
    given = {name: tensor for name, tensor in state.items() if not _is_within(name, classifier)}
    remark = ""
    same_shapes = [tensor.shape for tensor in own.values()] == [tensor.shape for tensor in state.values()]
    if same_shapes and not set(wanted) & set(given):
        given = {name: tensor for name, tensor in zip(own, state.values(), strict=True) if name in wanted}
        remark = "tensor names in the file differ, so tensors were matched by order"
    counters = {name for name in wanted if name.endswith("num_batches_tracked")}
    missing, unexpected = set(wanted) - set(given) - counters, set(given) - set(wanted)
    reshaped = [name for name in set(wanted) & set(given) if wanted[name].shape != given[name].shape]
    if missing or unexpected or reshaped:
        expected = f"the {len(set(wanted) - counters)} tensors of {type(model).__name__}"
        raise mismatched_weights(origin, expected, missing, unexpected, reshaped)
    model.load_state_dict({name: given.get(name, own[name]) for name in wanted}, strict=False)
    return remark


def check_finite(state: dict[str, Tensor], origin: str) -> None:
    """Raise if weights contain NaN or infinity, as after a failed training run."""
    bad = [name for name, t in state.items() if t.is_floating_point() and not t.isfinite().all()]
    if bad:
        raise FileFormatError("the weights contain NaN or infinite values", got=f"{origin}: {_shorten(bad)}")


def mismatched_weights(
    origin: str,
    expected: str = "",
    missing: Collection[str] = (),
    unexpected: Collection[str] = (),
    reshaped: Collection[str] = (),
) -> FileFormatError:
    """Return the error for weights of a different architecture, with the names of the tensors concerned."""
    groups = {"missing": missing, "unexpected": unexpected, "with a different shape": reshaped}
    parts = [f"{len(names)} {label} ({_shorten(names)})" for label, names in groups.items() if names]
    return FileFormatError(
        "the weights are from a different architecture",
        got=f"{origin}: {'; '.join(parts)}" if parts else origin,
        expected=expected,
    )


def _is_within(name: str, parts: str | tuple[str, ...] | None) -> bool:
    parts = (parts,) if isinstance(parts, str) else parts or ()
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def _shorten(names: Collection[str], shown: int = 3) -> str:
    """List the first names, and count the rest."""
    listed = ", ".join(sorted(names)[:shown])
    return listed + (f" and {len(names) - shown} more" if len(names) > shown else "")
