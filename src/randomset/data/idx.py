"""The idx file format of MNIST and related data sets, optionally gzipped."""

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

_MAX_RATIO = 1100  # upper bound on the compression ratio of gzip
_MAX_DIMENSIONS = 32
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


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
            plausible = size <= path.stat().st_size * _MAX_RATIO
            content = file.read(size + 1) if plausible else b""
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError("cannot read idx file", got=f"{path}: {error}") from None
    if len(shape) != dimensions or len(content) != size:
        length = f"more than {size}" if len(content) > size else len(content)
        raise FileFormatError(
            "idx file has the wrong length", got=f"{path} with {length} bytes of data", expected=f"{size}"
        )
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))
