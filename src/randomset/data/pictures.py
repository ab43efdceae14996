"""Image files: the pixels of one, its size without decoding it, and many read side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset._core.progress import progress_bar
from randomset.errors import FileFormatError, MissingPackageError

__all__ = ["each_file", "header_of", "is_picture", "pixels_from_picture", "pixels_of_file", "reason_of"]

_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff"}
_WORKERS = 2


def is_picture(path: Path) -> bool:
    """Say whether a file is an image by its name."""
    return path.suffix.lower() in _ENDINGS and not path.name.startswith(".")


def pixels_from_picture(
    picture: Any, size: tuple[int, int] | None = None, grey: bool | None = None
) -> Tensor:
    """Turn an image of Pillow into bytes (C × H × W), upright, of a size, grey or in colour.

    >>> from PIL import Image
    >>> pixels_from_picture(Image.new("L", (4, 3))).shape
    torch.Size([1, 3, 4])
    """
    from PIL import Image, ImageOps

    picture = ImageOps.exif_transpose(picture)
    if picture.mode == "F":
        raise FileFormatError(
            "an image has pixels of no known range", got="floating point", expected="8 or 16 bits a pixel"
        )
    if picture.mode.startswith("I"):  # sixteen bits for each pixel
        values = np.asarray(picture, dtype=np.float32)
        picture = Image.fromarray(np.clip(values / 257, 0, 255).round().astype(np.uint8))
    if "transparency" in picture.info:  # a palette's, of which Pillow warns
        picture = picture.convert("RGBA")
    if grey is None:
        grey = _is_grey(picture)
    picture = picture.convert("L" if grey else "RGB")
    if size is not None and (picture.height, picture.width) != size:
        picture = ImageOps.fit(picture, (size[1], size[0]), Image.Resampling.BILINEAR)
    array = np.array(picture)
    return torch.from_numpy(array[None] if grey else np.ascontiguousarray(array.transpose(2, 0, 1)))


def _is_grey(picture: Any) -> bool:
    return picture.mode in ("1", "L", "LA", "I", "F") or picture.mode.startswith("I;16")


def pixels_of_file(path: Path, size: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    """Read the image in a file as bytes (C × H × W) of a size, grey or in colour."""
    with _opened(path) as picture:
        return pixels_from_picture(picture, size, grey).numpy()


def header_of(path: Path) -> tuple[tuple[int, int], bool]:
    """Return height and width as it will stand, and whether it is grey, without decoding it."""
    with _opened(path) as picture:
        turned = picture.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        height, width = (picture.width, picture.height) if turned else (picture.height, picture.width)
        return (height, width), _is_grey(picture)


def _opened(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError("pillow", "data") from None
    return Image.open(path)


def each_file(
    function: Callable[[Path], Any], files: Sequence[Path], what: str, progress: bool | None
) -> Iterator[Any]:
    """Apply a function to every file, in order; an error of one file takes the place of its result."""

    def safe(path: Path) -> Any:
        try:
            return function(path)
        except MissingPackageError:
            raise
        except Exception as error:  # Pillow's readers raise errors of many kinds on broken files
            return error

    with warnings.catch_warnings(), ThreadPoolExecutor(_WORKERS) as pool:
        warnings.simplefilter("ignore")  # a file with a flaw that can be read all the same is read
        warnings.simplefilter("error", _bomb())
        with progress_bar(what, len(files), progress) as advance:
            step = 512  # few results wait at any time
            for start in range(0, len(files), step):
                for found in pool.map(safe, files[start : start + step]):
                    advance(1)
                    yield found


def _bomb() -> type[Warning]:
    """Return Pillow's warning of an image that claims too many pixels: such a file is not read."""
    try:
        from PIL import Image
    except ImportError:
        return Warning
    return Image.DecompressionBombWarning


def reason_of(error: Any) -> str:
    """Say in a few words why an image cannot be read."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "no image" if "cannot identify" in text else text
