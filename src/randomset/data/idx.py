"""The idx files in which MNIST and its relatives are published, compressed or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from randomset.errors import FileFormatError

__all__ = ["read_idx"]

_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: Path) -> NDArray[np.generic]:
    """Read an array from an idx file; a file that is not whole is refused.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "small-idx1-ubyte"
    >>> _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    >>> read_idx(file)
    array([7, 9], dtype=uint8)
    """
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError("the file cannot be read", got=f"{path}: {error}") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
        raise FileFormatError("this is no idx file", got=str(path))
    kind, dimensions = np.dtype(_TYPES[content[2]]), content[3]
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", content[4:start]) if len(content) >= start else ()
    size = math.prod(shape) * kind.itemsize
    if len(shape) != dimensions or len(content) - start != size:
        raise FileFormatError(
            "the idx file is not whole", got=f"{path} with {len(content)} bytes", expected=f"{start + size}"
        )
    return np.frombuffer(content, kind, offset=start).reshape(shape).astype(kind.newbyteorder("="))
