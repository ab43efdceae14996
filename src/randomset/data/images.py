"""Image files: reading pixels and headers, and processing many files in parallel."""

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

__all__ = ["error_reason", "is_image_file", "map_files", "pixels_from_pil", "read_header", "read_pixels"]

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff"}
_WORKERS = 2


def is_image_file(path: Path) -> bool:
    """Return whether a file is an image, judging by its name."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def pixels_from_pil(image: Any, size: tuple[int, int] | None = None, grey: bool | None = None) -> Tensor:
    """Convert a Pillow image to uint8 (C × H × W), applying its EXIF orientation; resize if `size` is given.

    >>> from PIL import Image
    >>> pixels_from_pil(Image.new("L", (4, 3))).shape
    torch.Size([1, 3, 4])
    """
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        raise FileFormatError(
            "unsupported pixel type",
            got="floating point, of unknown range",
            expected="8 or 16 bits per pixel",
        )
    if image.mode.startswith("I"):  # 16 bits per pixel
        values = np.asarray(image, dtype=np.float32)
        image = Image.fromarray(np.clip(values / 257, 0, 255).round().astype(np.uint8))
    if "transparency" in image.info:  # a palette with alpha; Pillow warns on direct conversion
        image = image.convert("RGBA")
    if grey is None:
        grey = _is_grey(image)
    image = image.convert("L" if grey else "RGB")
    if size is not None and (image.height, image.width) != size:
        image = ImageOps.fit(image, (size[1], size[0]), Image.Resampling.BILINEAR)
    array = np.array(image)
    return torch.from_numpy(array[None] if grey else np.ascontiguousarray(array.transpose(2, 0, 1)))


def _is_grey(image: Any) -> bool:
    return image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16")


def read_pixels(path: Path, size: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    """Read an image file as uint8 (C × H × W) of the given size, grey or in colour."""
    with _open(path) as image:
        return pixels_from_pil(image, size, grey).numpy()


def read_header(path: Path) -> tuple[tuple[int, int], bool]:
    """Return (height, width) after EXIF rotation and whether the image is grey, without decoding it."""
    with _open(path) as image:
        transposed = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        size = (image.width, image.height) if transposed else (image.height, image.width)
        return size, _is_grey(image)


def _open(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError("pillow", "data") from None
    return Image.open(path)


def map_files(
    function: Callable[[Path], Any], files: Sequence[Path], title: str, progress: bool | None
) -> Iterator[Any]:
    """Yield the result of a function for each file in order, or the exception that it raised."""

    def safe(path: Path) -> Any:
        try:
            return function(path)
        except MissingPackageError:
            raise
        except Exception as error:  # Pillow raises many kinds of errors on broken files
            return error

    with warnings.catch_warnings(), ThreadPoolExecutor(_WORKERS) as pool:
        warnings.simplefilter("ignore")  # about defects that do not prevent reading
        warnings.simplefilter("error", _decompression_bomb())
        with progress_bar(title, len(files), progress) as advance:
            step = 512  # bounds the number of pending results
            for start in range(0, len(files), step):
                for result in pool.map(safe, files[start : start + step]):
                    advance(1)
                    yield result


def _decompression_bomb() -> type[Warning]:
    """Return Pillow's warning about images with too many pixels, which are not read."""
    try:
        from PIL import Image
    except ImportError:
        return Warning
    return Image.DecompressionBombWarning


def error_reason(error: Any) -> str:
    """Return a short reason why an image cannot be read."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "not an image" if "cannot identify" in text else text
