"""Many images as one tensor: in memory, or on disk and found there the next time."""

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
from randomset.data.pictures import each_file, pixels_of_file, reason_of
from randomset.errors import RandomSetError

__all__ = ["decoded"]


def decoded(
    files: Sequence[Path], shape: tuple[int, ...], what: str, progress: bool | None
) -> tuple[Tensor, list[int], dict[int, str]]:
    """Decode images of one shape; return them, the places of those that could be read, and why others not."""
    large = int(np.prod(shape)) >= LARGE
    if large:
        stored = _stored(files, shape)
        found = _found(*stored, shape) if stored[0].is_file() and stored[1].is_file() else None
        if found is not None:
            return _kept(*found)
        try:
            stored[0].parent.mkdir(parents=True, exist_ok=True)
            with replacing(stored[0]) as temporary:
                room = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
                lost = _fill(room, files, what, progress)
                room.flush()
            with replacing(stored[1]) as temporary:
                temporary.write_text(json.dumps(lost), encoding="utf-8")
        except OSError as error:
            raise RandomSetError(
                "the decoded images cannot be kept",
                got=f"{stored[0]}: {error.strerror or error}",
                expected=f"room for {int(np.prod(shape)) / 1e9:.1f} GB",
                remedy="Ask for a smaller size, or let RANDOMSET_DATA name a folder with room",
            ) from None
        return _kept(np.load(stored[0], mmap_mode="c"), lost)
    array = np.empty(shape, np.uint8)
    return _kept(array, _fill(array, files, what, progress))


def _found(
    images: Path, losses: Path, shape: tuple[int, ...]
) -> tuple[NDArray[np.uint8], dict[int, str]] | None:
    """Read images that were decoded before; None if their files are not whole."""
    try:
        lost = {int(place): str(why) for place, why in json.loads(losses.read_text("utf-8")).items()}
        array = np.load(images, mmap_mode="c")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return (array, lost) if array.shape == shape and array.dtype == np.uint8 else None


def _kept(array: NDArray[np.uint8], lost: dict[int, str]) -> tuple[Tensor, list[int], dict[int, str]]:
    kept = [place for place in range(len(array)) if place not in lost]
    # Those that could be read stand first, so that nothing needs to be copied.
    return torch.from_numpy(array)[: len(kept)], kept, lost


def _fill(
    array: NDArray[np.uint8], files: Sequence[Path], what: str, progress: bool | None
) -> dict[int, str]:
    """Write each image that can be read into the next free row; return why others cannot."""
    size, grey = (array.shape[2], array.shape[3]), array.shape[1] == 1
    lost: dict[int, str] = {}
    free = 0
    for place, found in enumerate(
        each_file(lambda path: pixels_of_file(path, size, grey), files, what, progress)
    ):
        if isinstance(found, Exception):
            lost[place] = reason_of(found)
        else:
            array[free] = found
            free += 1
    return lost


def _stored(files: Sequence[Path], shape: tuple[int, ...]) -> tuple[Path, Path]:
    """Name the files that hold these images decoded: other names, dates or sizes give others."""
    key = hashlib.blake2b(repr(shape).encode(), digest_size=12)
    for path in files:
        state = path.stat()
        key.update(f"{path.resolve()}|{state.st_size}|{state.st_mtime_ns}\n".encode())
    folder = data_folder() / "decoded"
    return folder / f"{key.hexdigest()}.npy", folder / f"{key.hexdigest()}.json"
