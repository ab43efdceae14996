"""Decode many image files into one tensor, in memory or in a cache on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset._core.files import replacing
from randomset.data.arrays import LARGE
from randomset.data.catalogue import data_folder
from randomset.data.images import error_reason, map_files, read_pixels
from randomset.errors import RandomSetError

__all__ = ["decode_images"]


def decode_images(
    files: Sequence[Path], shape: tuple[int, ...], title: str, progress: bool | None
) -> tuple[Tensor, list[int], dict[int, str]]:
    """Decode images to a common shape; return them, the indices of readable files, and other files' errors.

    The result is cached in the data folder if it is large.
    """
    size = int(np.prod(shape))
    if size < LARGE:
        array = np.empty(shape, np.uint8)
        return _readable(array, _fill(array, files, title, progress))
    images, errors = _cache_paths(files, shape)
    cached = _read_cache(images, errors, shape) if images.is_file() and errors.is_file() else None
    if cached is not None:
        return _readable(*cached)
    try:
        images.parent.mkdir(parents=True, exist_ok=True)
        with replacing(images) as temporary:
            memmap = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
            failed = _fill(memmap, files, title, progress)
            memmap.flush()
        with replacing(errors) as temporary:
            temporary.write_text(json.dumps(failed), encoding="utf-8")
    except OSError as error:
        raise RandomSetError(
            "cannot write decoded images",
            got=f"{images}: {error.strerror or error}",
            expected=f"{size / 1e9:.1f} GB of free space",
            remedy="Choose a smaller image size, or set RANDOMSET_DATA to a folder with enough space",
        ) from None
    return _readable(np.load(images, mmap_mode="c"), failed)


def _read_cache(
    images: Path, errors: Path, shape: tuple[int, ...]
) -> tuple[NDArray[np.uint8], dict[int, str]] | None:
    """Read cached images; return None if the files are damaged."""
    try:
        failed = {int(index): str(reason) for index, reason in json.loads(errors.read_text("utf-8")).items()}
        array = np.load(images, mmap_mode="c")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return (array, failed) if array.shape == shape and array.dtype == np.uint8 else None


def _readable(array: NDArray[np.uint8], failed: dict[int, str]) -> tuple[Tensor, list[int], dict[int, str]]:
    kept = [index for index in range(len(array)) if index not in failed]
    return torch.from_numpy(array)[: len(kept)], kept, failed  # readable images come first: no copy


def _fill(
    array: NDArray[np.uint8], files: Sequence[Path], title: str, progress: bool | None
) -> dict[int, str]:
    """Write each readable image to the next free row; return the errors of the others by index."""
    size, grey = (array.shape[2], array.shape[3]), array.shape[1] == 1
    failed: dict[int, str] = {}
    row = 0
    pixels = map_files(lambda path: read_pixels(path, size, grey), files, title, progress)
    for index, result in enumerate(pixels):
        if isinstance(result, Exception):
            failed[index] = error_reason(result)
        else:
            array[row] = result
            row += 1
    return failed


def _cache_paths(files: Sequence[Path], shape: tuple[int, ...]) -> tuple[Path, Path]:
    """Return the cache files of these images; the names depend on all paths, dates and sizes."""
    key = hashlib.blake2b(repr(shape).encode(), digest_size=12)
    for path in files:
        state = path.stat()
        key.update(f"{path.resolve()}|{state.st_size}|{state.st_mtime_ns}\n".encode())
    folder = data_folder() / "decoded"
    return folder / f"{key.hexdigest()}.npy", folder / f"{key.hexdigest()}.json"
