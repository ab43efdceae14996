"""Arrays in .npz files: images or features, with labels and names; large ones stay on disk."""

from __future__ import annotations

import math
import os
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset.errors import FileFormatError, ShapeError

__all__ = ["LARGE", "images_from_array", "inputs_from_arrays", "read_arrays"]

_PACKED = 200
LARGE = 2**30
"""Bytes from which an array stays on disk, mapped into memory."""


def read_arrays(path: Path, wanted: tuple[str, ...], needed: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Read an .npz file, without ever running what is inside; large arrays that are not packed stay there."""
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            names = archive.files
            arrays = {}
            for name in names:
                if name in wanted:
                    assert archive.zip is not None
                    entry = _entry(archive.zip, name)
                    mapped = _mapped(path, entry)
                    arrays[name] = _unpacked(archive.zip, entry) if mapped is None else mapped
    except MemoryError:
        raise FileFormatError(
            "the arrays do not fit into memory",
            got=str(path),
            remedy="Write the file with numpy.savez, not savez_compressed: then it is read piece by piece",
        ) from None
    except Exception as error:  # damaged archives, and headers of arrays, end in errors of many kinds
        raise FileFormatError(
            "the file cannot be read as .npz",
            got=f"{path}: {_why(path, error)}",
            expected="arrays of numbers or text, written by numpy.savez (text as dtype str, not object)",
        ) from None
    for name in needed:
        if name not in arrays:
            raise FileFormatError(
                f"the file has no array {name!r}",
                got=f"{path} with {', '.join(names) or 'nothing'}",
                remedy=f"Write it with numpy.savez(path, {wanted[0]}=…, labels=…)",
            )
    return arrays


def _entry(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    return archive.getinfo(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name)


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array, after its header: what it claims must fit what the archive holds."""
    size, packed = entry.file_size, entry.compress_size
    if size > _memory() or (
        size > LARGE and size > _PACKED * packed
    ):  # no data are so much larger than packed
        raise MemoryError
    with archive.open(entry) as file:
        shape, _, dtype = _header(file)
        values = math.prod(shape)
        if min(shape, default=0) < 0 or values > size or file.tell() + values * dtype.itemsize > size:
            raise ValueError(f"{entry.filename} does not hold the array of shape {shape} that it claims")
    with archive.open(entry) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    if dtype.kind == "U" and array.size:
        letters = np.ascontiguousarray(array).reshape(-1).view(f"{dtype.byteorder}u4")
        if letters.max() > sys.maxunicode:
            raise ValueError(f"{entry.filename} holds letters that do not exist")
    return array


def _memory() -> float:
    """Return the bytes of memory that the machine has, if it tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an array: its shape, whether it lies column by column, its type."""
    first = np.lib.format.read_magic(file) == (1, 0)
    reader = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on files of old Pythons, which are read all the same
        return reader(file)


def _mapped(path: Path, entry: zipfile.ZipInfo) -> NDArray[Any] | None:
    """Map a large array that lies in the archive as it is; None for all others."""
    if entry.file_size < LARGE or entry.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as file:
        file.seek(entry.header_offset + 26)  # the lengths of name and extra field of the entry's own header
        name_length, extra = struct.unpack("<HH", file.read(4))
        file.seek(name_length + extra, os.SEEK_CUR)
        shape, fortran, dtype = _header(file)
        if dtype.hasobject or fortran or dtype.kind == "U":
            return None
        # "c": nobody writes into it, and torch asks for an array that could be written to.
        return np.memmap(path, dtype, "c", file.tell(), shape)


def _why(path: Path, error: Exception) -> str:
    if "pickle" not in str(error):
        return str(error) or type(error).__name__
    whole = path.is_file() and zipfile.is_zipfile(path)
    return "it holds Python objects" if whole else "it is another kind of file"


def inputs_from_arrays(
    arrays: dict[str, NDArray[Any]], path: Path
) -> tuple[Literal["images", "features"], Tensor]:
    """Take the images or the features among arrays, checked."""
    if ("images" in arrays) == ("features" in arrays):
        raise FileFormatError(
            "the file needs either `images` or `features`",
            got=f"{path} with {'both' if 'images' in arrays else 'neither'}",
        )
    kind: Literal["images", "features"] = "images" if "images" in arrays else "features"
    array = arrays[kind]
    if array.dtype.kind not in "fiub" or array.ndim < 2 or not array.size:
        raise ShapeError(
            f"the {kind} are not arrays of numbers",
            got=f"{array.dtype} of shape {array.shape}",
            expected="(n, height, width), with channels or without" if kind == "images" else "(n, features)",
        )
    if array.dtype.kind == "f":
        for start, part in _pieces(array):
            bad = ~np.isfinite(part).reshape(len(part), -1).all(1)
            if bad.any():
                place = start + int(bad.argmax())
                raise ShapeError(f"the {kind} are not all finite", got=f"NaN or infinity in sample {place}")
    if kind == "features":
        array = array.reshape(len(array), -1)
    with np.errstate(over="ignore"):
        tensor = images_from_array(array) if kind == "images" else _floats(array)
    if array.dtype.kind == "f" and array.dtype.itemsize > 4 and not tensor.isfinite().all():
        place = int((~tensor.flatten(1).isfinite().all(1)).nonzero()[0])
        raise ShapeError(
            f"the {kind} hold numbers beyond what a network takes",
            got=f"one that is infinite as float32 in sample {place}",
        )
    return kind, tensor


def _floats(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.astype(np.float32, copy=False))


def images_from_array(array: NDArray[Any]) -> Tensor:
    """Bring images into the form (n × C × H × W), of bytes or of floats.

    Channels may come last if there are 1, 3 or 4 of them. Whole numbers from 0 to 255 are bytes. A large
    array that is mapped from disk stays there.

    >>> images_from_array(np.zeros((5, 8, 8, 3))).shape
    torch.Size([5, 3, 8, 8])
    """
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[-1] in (1, 3, 4) and array.shape[1] not in (1, 3, 4):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] > 64:
        raise ShapeError(
            "these are no images", got=f"shape {array.shape}", expected="(n, height, width, channels)"
        )
    if array.dtype.kind in "iu" and array.dtype != np.uint8:
        bytes_only = all(part.min() >= 0 and part.max() <= 255 for _, part in _pieces(array))
        array = array.astype(np.uint8 if bytes_only else np.float32)
    elif array.dtype != np.uint8:
        array = array.astype(np.float32, copy=False)
    mapped = isinstance(array, np.memmap) and array.nbytes >= LARGE
    return torch.from_numpy(array if mapped else np.ascontiguousarray(array))


def _pieces(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Cut an array into parts of some megabytes, with the row at which each begins."""
    rows = max(1, 2**26 // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]
