"""Weights and models of other libraries: found on this machine or downloaded, read and loaded.

Files are safetensors, or tensors written by torch.save; never a pickle that could run code.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from randomset._core.batches import on_terminal
from randomset._core.checks import listed
from randomset._core.packages import optional_package
from randomset._core.torchvision import import_torchvision_first
from randomset.errors import FileFormatError, RandomSetError, first_line

__all__ = [
    "check_finite",
    "download_from_hub",
    "download_weights",
    "import_transformers",
    "load_from_hub",
    "load_weights_into",
    "mismatched_weights",
    "read_weights",
    "torch_hub_folder",
]

_MODEL_NAME = r"\w[\w.-]*(/\w[\w.-]*)?"
_WRAPPERS = ("state_dict", "model_state_dict", "model", "model_ema", "net")


def torch_hub_folder() -> Path:
    """Return the folder in which torch caches weights."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def download_weights(url: str, name: str) -> Path:
    """Return the file behind a URL, downloaded unless torch has it in its cache."""
    file = torch_hub_folder() / url.rpartition("/")[2]
    if file.is_file():
        return file
    try:
        torch.hub.load_state_dict_from_url(url, map_location="cpu", weights_only=True, progress=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_found(name, file.name, file.parent, error) from None
    return file


def download_from_hub(repository: str, name: str) -> Path:
    """Return a model's weights from torch's cache, Hugging Face's cache or the Hugging Face Hub."""
    cached = torch_hub_folder() / f"{repository.rpartition('/')[2]}.safetensors"
    if cached.is_file():
        return cached
    from huggingface_hub import hf_hub_download

    failure: Exception | None = None
    for local in (True, False):
        try:
            return Path(hf_hub_download(repository, "model.safetensors", local_files_only=local))
        except (OSError, ValueError) as error:
            failure = error
    file = f"model.safetensors of {repository}, renamed to {cached.name},"
    raise _not_found(name, file, cached.parent, failure)


def _not_found(name: str, file: str, folder: Path, error: Exception | None) -> RandomSetError:
    return RandomSetError(
        "the weights are not on this machine and could not be downloaded",
        got=f"{name} ({first_line(error)})",
        expected=f"{file} in {folder}",
        remedy="Put the file there, or pass one with --weights FILE",
    )


def import_transformers() -> Any:
    """Import transformers, without its progress bars unless the user sees them."""
    import_torchvision_first()
    with optional_package("transformers", "text"):
        import transformers
    if not on_terminal():
        transformers.utils.logging.disable_progress_bar()  # it would fill a log file
    return transformers


def load_from_hub(load: Callable[..., Any], name: str, file: str, **options: Any) -> Any:
    """Load from a folder or the local cache, then from the Hugging Face Hub.

    Code that comes with a model is never run.
    """
    is_folder = Path(name).is_dir()
    local_only = [True]
    failure: Exception | None = None
    if is_folder:
        if not any((Path(name) / each).is_file() for each in (file, "config.json")):
            raise FileFormatError("the folder does not contain a Hugging Face model", got=name, expected=file)
    elif not re.fullmatch(_MODEL_NAME, name):  # a URL, or a folder that does not exist
        local_only, failure = [], ValueError("neither a folder nor a valid model name")
    elif os.environ.get("HF_HUB_OFFLINE", "0") in ("", "0"):
        local_only = [True, False]
    for local in local_only:
        try:
            return load(name, local_files_only=local, trust_remote_code=False, **options)
        except Exception as error:  # missing, damaged or mismatched files raise many different types
            failure = error
    problem = "is not on this machine and could not be downloaded"
    files = "config.json" if file == "config.json" else f"{file}, config.json"
    raise FileFormatError(
        f"the model {'cannot be loaded from its folder' if is_folder else problem}",
        got=f"hf:{name} ({first_line(failure)})",
        expected=f"a folder with {files} and, for texts, a tokenizer",
        remedy="Copy the complete model into a folder and pass it: hf:FOLDER",
    )


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
        problem, remedy = "damaged or unknown format", "Download it again"
        if call := re.search(r"GLOBAL ([\w.]+)", str(error)):
            problem = f"loading it would call {call[1]}"
            remedy = "Files that run code are rejected: save the state dict alone"
        raise FileFormatError(
            "the file does not contain only weights",
            got=f"{path}: {problem}",
            expected="named tensors, as written by torch.save(model.state_dict(), …) or safetensors",
            remedy=remedy,
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
        got = f"{origin}: {listed(sorted(bad), 3)}"
        raise FileFormatError("the weights contain NaN or infinite values", got=got)


def mismatched_weights(
    origin: str,
    expected: str = "",
    missing: Collection[str] = (),
    unexpected: Collection[str] = (),
    reshaped: Collection[str] = (),
) -> FileFormatError:
    """Return the error for weights of a different architecture, with the names of the tensors concerned."""
    groups = {"missing": missing, "unexpected": unexpected, "with a different shape": reshaped}
    parts = [f"{len(names)} {label} ({listed(sorted(names), 3)})" for label, names in groups.items() if names]
    return FileFormatError(
        "the weights are from a different architecture",
        got=f"{origin}: {'; '.join(parts)}" if parts else origin,
        expected=expected,
    )


def _is_within(name: str, parts: str | tuple[str, ...] | None) -> bool:
    parts = (parts,) if isinstance(parts, str) else parts or ()
    return any(name == part or name.startswith(f"{part}.") for part in parts)
