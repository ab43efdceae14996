"""Published weights and models: from this machine where available, otherwise downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from randomset._core.progress import on_terminal
from randomset._core.torchvision import import_torchvision_first
from randomset.errors import FileFormatError, MissingPackageError, RandomSetError

__all__ = [
    "download_from_hub",
    "download_weights",
    "first_line",
    "import_transformers",
    "load_from_hub",
    "no_published_weights",
    "torch_hub_folder",
]

_MODEL_NAME = r"\w[\w.-]*(/\w[\w.-]*)?"


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


def no_published_weights(name: str) -> RandomSetError:
    """Return the error for a model without published weights."""
    return RandomSetError(
        "no weights are published for this network",
        got=f"{name} with --weights default",
        expected="--weights none, or a file",
    )


def import_transformers() -> Any:
    """Import transformers."""
    import_torchvision_first()
    try:
        import transformers
    except ImportError:
        raise MissingPackageError("transformers", "text") from None
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


def first_line(error: Exception | None) -> str:
    """Return the first line of an error's message, or its type where the message is empty."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
