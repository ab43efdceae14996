"""Arrays in .npz and idx files: images or features, labels and class names; large ones are memory-mapped."""

from __future__ import annotations

import gzip
import math
import os
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset.errors import FileFormatError, ShapeError

__all__ = ["LARGE", "Content", "images_from_array", "inputs_from_arrays", "read_arrays", "read_idx"]

_MAX_RATIO = 200  # compression ratio of plausible data
LARGE = 2**30
"""Size in bytes from which an array is memory-mapped."""
_MAX_GZIP_RATIO = 1100  # upper bound on the compression ratio of gzip
_MAX_DIMENSIONS = 32
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


@dataclass(frozen=True)
class Content:
    """What a file or folder contains: inputs, labels as they are written there if any, and as in `Source`."""

    kind: Literal["images", "features", "text"]
    inputs: Any
    labels: NDArray[Any] | None = None
    classes: Any = None
    remarks: tuple[str, ...] = ()
    files: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    rows: tuple[int, ...] | None = None


def read_arrays(path: Path, wanted: tuple[str, ...], needed: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Read an .npz file without unpickling; large uncompressed arrays are memory-mapped."""
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("single array")
            names, content = archive.files, archive.zip
            assert content is not None
            arrays = {}
            for name in [name for name in names if name in wanted]:
                member = f"{name}.npy" if f"{name}.npy" in content.namelist() else name
                mapped = _mapped(path, content.getinfo(member))
                arrays[name] = _decompressed(content, content.getinfo(member)) if mapped is None else mapped
    except MemoryError:
        raise FileFormatError(
            "arrays do not fit into memory",
            got=str(path),
            remedy="Write the file with numpy.savez instead of savez_compressed, so that it can be mapped",
        ) from None
    except Exception as error:  # damaged archives and headers raise many kinds of errors
        raise FileFormatError(
            "cannot read .npz file",
            got=f"{path}: {_reason(path, error)}",
            expected="numeric or string arrays written by numpy.savez (dtype str, not object)",
        ) from None
    for name in needed:
        if name not in arrays:
            raise FileFormatError(
                f"missing array {name!r}",
                got=f"{path} with {', '.join(names) or 'no arrays'}",
                remedy=f"Write it with numpy.savez(path, {wanted[0]}=…, labels=…)",
            )
    return arrays


def _decompressed(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array after checking that its header matches the size of the entry."""
    size = entry.file_size
    if size > _total_memory() or size > max(LARGE, _MAX_RATIO * entry.compress_size):
        raise MemoryError
    with archive.open(entry) as file:
        shape, _, dtype = _header(file)
        values = math.prod(shape)
        if min(shape, default=0) < 0 or values > size or file.tell() + values * dtype.itemsize > size:
            raise ValueError(f"{entry.filename} is too short for its shape {shape}")
    with archive.open(entry) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    if dtype.kind == "U" and array.size:
        code_points = np.ascontiguousarray(array).reshape(-1).view(f"{dtype.byteorder}u4")
        if code_points.max() > sys.maxunicode:
            raise ValueError(f"{entry.filename} contains invalid code points")
    return array


def _total_memory() -> float:
    """Return the machine's memory in bytes, or infinity if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an array: shape, whether it is in Fortran order, dtype."""
    version_1 = np.lib.format.read_magic(file) == (1, 0)
    reader = np.lib.format.read_array_header_1_0 if version_1 else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about files written by Python 2, which are readable
        return reader(file)


def _mapped(path: Path, entry: zipfile.ZipInfo) -> NDArray[Any] | None:
    """Memory-map a large uncompressed array; return None for all others."""
    if entry.file_size < LARGE or entry.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as file:
        file.seek(entry.header_offset + 26)  # lengths of the name and extra fields in the local header
        name_length, extra = struct.unpack("<HH", file.read(4))
        file.seek(name_length + extra, os.SEEK_CUR)
        shape, fortran, dtype = _header(file)
        if dtype.hasobject or fortran or dtype.kind == "U":
            return None
        # copy-on-write: torch requires a writable array
        return np.memmap(path, dtype, "c", file.tell(), shape)


def _reason(path: Path, error: Exception) -> str:
    if "pickle" not in str(error):
        return str(error) or type(error).__name__
    is_zip = path.is_file() and zipfile.is_zipfile(path)
    return "contains Python objects" if is_zip else "not an .npz file"


def inputs_from_arrays(
    arrays: dict[str, NDArray[Any]], path: Path
) -> tuple[Literal["images", "features"], Tensor]:
    """Return the kind and the checked tensor of the images or features among the arrays."""
    if ("images" in arrays) == ("features" in arrays):
        raise FileFormatError(
            "file must contain either `images` or `features`",
            got=f"{path} with {'both' if 'images' in arrays else 'neither'}",
        )
    kind: Literal["images", "features"] = "images" if "images" in arrays else "features"
    array = arrays[kind]
    if array.dtype.kind not in "fiub" or array.ndim < 2 or not array.size:
        raise ShapeError(
            f"{kind} must be a non-empty numeric array",
            got=f"{array.dtype} of shape {array.shape}",
            expected="(n, height, width), with channels or without" if kind == "images" else "(n, features)",
        )
    if array.dtype.kind == "f":
        for start, chunk in _chunks(array):
            bad = ~np.isfinite(chunk).reshape(len(chunk), -1).all(1)
            if bad.any():
                sample = start + int(bad.argmax())
                raise ShapeError(f"{kind} must be finite", got=f"NaN or infinity in sample {sample}")
    if kind == "features":
        array = array.reshape(len(array), -1)
    with np.errstate(over="ignore"):
        if kind == "images":
            tensor = images_from_array(array)
        else:
            tensor = torch.from_numpy(array.astype(np.float32, copy=False))
    if array.dtype.kind == "f" and array.dtype.itemsize > 4 and not tensor.isfinite().all():
        sample = int((~tensor.flatten(1).isfinite().all(1)).nonzero()[0])
        raise ShapeError(f"{kind} exceed the range of float32", got=f"overflow in sample {sample}")
    return kind, tensor


def images_from_array(array: NDArray[Any]) -> Tensor:
    """Convert images to a tensor (n × C × H × W) of uint8 or float32.

    Channels may come last if there are 1, 3 or 4 of them. Integers from 0 to 255 become uint8. Large
    memory-mapped arrays stay on disk.

    >>> images_from_array(np.zeros((5, 8, 8, 3))).shape
    torch.Size([5, 3, 8, 8])
    """
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[-1] in (1, 3, 4) and array.shape[1] not in (1, 3, 4):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] > 64:
        raise ShapeError(
            "invalid image shape", got=f"shape {array.shape}", expected="(n, height, width, channels)"
        )
    if array.dtype.kind in "iu" and array.dtype != np.uint8:
        fits = all(chunk.min() >= 0 and chunk.max() <= 255 for _, chunk in _chunks(array))
        array = array.astype(np.uint8 if fits else np.float32)
    elif array.dtype != np.uint8:
        array = array.astype(np.float32, copy=False)
    mapped = isinstance(array, np.memmap) and array.nbytes >= LARGE
    return torch.from_numpy(array if mapped else np.ascontiguousarray(array))


def _chunks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the array in chunks of at most 64 MB, each with the index of its first row."""
    rows = max(1, 2**26 // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]


def read_idx(path: Path) -> NDArray[np.generic]:
    """Read an array from an idx file; truncated files are rejected.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "small-idx1-ubyte"
    >>> _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    >>> read_idx(file)
    array([7, 9], dtype=uint8)
    """
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES or head[3] > _MAX_DIMENSIONS:
                raise FileFormatError("not an idx file", got=str(path))
            dtype, dimensions = np.dtype(_TYPES[head[2]]), head[3]
            sides = file.read(4 * dimensions)
            shape = struct.unpack(f">{len(sides) // 4}I", sides[: len(sides) // 4 * 4])
            size = math.prod(shape) * dtype.itemsize
            # read no more than the header declares, and nothing if that is impossible
            plausible = size <= path.stat().st_size * _MAX_GZIP_RATIO
            content = file.read(size + 1) if plausible else b""
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError("cannot read idx file", got=f"{path}: {error}") from None
    if len(shape) != dimensions or len(content) != size:
        length = f"more than {size}" if len(content) > size else len(content)
        raise FileFormatError(
            "idx file has the wrong length", got=f"{path} with {length} bytes of data", expected=f"{size}"
        )
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))
