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

_PACKED = 1100  # no byte of a .gz file stands for more
_MOST = 32  # dimensions of an array
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
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES or head[3] > _MOST:
                raise FileFormatError("this is no idx file", got=str(path))
            kind, dimensions = np.dtype(_TYPES[head[2]]), head[3]
            sides = file.read(4 * dimensions)
            shape = struct.unpack(f">{len(sides) // 4}I", sides[: len(sides) // 4 * 4])
            size = math.prod(shape) * kind.itemsize
            # A packed file may claim, or hold, anything: no more is unpacked than it should have.
            most = path.stat().st_size * _PACKED
            content = file.read(size + 1) if size <= most else b""
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError("the file cannot be read", got=f"{path}: {error}") from None
    if len(shape) != dimensions or len(content) != size:
        found = "more" if len(content) > size else len(content)
        raise FileFormatError(
            "the idx file is not whole", got=f"{path} with {found} bytes of values", expected=f"{size}"
        )
    return np.frombuffer(content, kind).reshape(shape).astype(kind.newbyteorder("="))
