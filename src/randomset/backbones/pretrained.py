"""Published weights: from this machine if they are here, else fetched; what cannot be had is named."""

from __future__ import annotations

from pathlib import Path

import torch

from randomset.errors import RandomSetError

__all__ = ["downloaded", "hub_file", "hub_folder", "none_published"]


def hub_folder() -> Path:
    """Return where torch keeps files of weights."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def downloaded(url: str, name: str) -> Path:
    """Return the file that a web address names, from torch's folder or the web."""
    file = hub_folder() / url.rpartition("/")[2]
    if file.is_file():
        return file
    try:
        torch.hub.load_state_dict_from_url(url, map_location="cpu", weights_only=True, progress=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_here(name, file.name, file.parent, error) from None
    return file


def hub_file(repository: str, name: str) -> Path:
    """Return a model's weights from torch's folder, Hugging Face's cache or its hub."""
    from huggingface_hub import hf_hub_download

    kept = hub_folder() / f"{repository.rpartition('/')[2]}.safetensors"
    if kept.is_file():
        return kept
    error: Exception | None = None
    for local in (True, False):
        try:
            return Path(hf_hub_download(repository, "model.safetensors", local_files_only=local))
        except (OSError, ValueError) as found:
            error = found
    raise _not_here(name, f"model.safetensors of {repository}, called {kept.name},", kept.parent, error)


def _not_here(name: str, file: str, folder: Path, error: Exception | None) -> RandomSetError:
    return RandomSetError(
        "the weights are not on this machine and could not be fetched",
        got=f"{name} ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
        expected=f"{file} in {folder}",
        remedy="Put the file there, or name one with --weights FILE",
    )


def none_published(name: str) -> RandomSetError:
    """Say that nobody has published weights of a model."""
    return RandomSetError(
        "no weights are published for this network",
        got=f"{name} with --weights default",
        expected="--weights none, or a file",
    )
