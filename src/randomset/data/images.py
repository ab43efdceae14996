"""Image files and folders of them: read pixels and headers, decode many files into one tensor, encode PNG."""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset._core.batches import progress_bar
from randomset._core.checks import listed
from randomset._core.files import replacing
from randomset._core.packages import optional_package
from randomset._core.pixels import is_grey, pixels_from_pil
from randomset.data.arrays import LARGE, Content
from randomset.data.catalogue import data_folder
from randomset.errors import FileFormatError, RandomSetError, first_line

__all__ = [
    "CLASSES",
    "decode_images",
    "error_reason",
    "has_split",
    "is_image_file",
    "map_files",
    "png_from_image",
    "read_folder",
    "read_header",
    "read_pixels",
]

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff"}
_WORKERS = 2


def is_image_file(path: Path) -> bool:
    """Return whether a file is an image, judging by its name."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def read_pixels(path: Path, size: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    """Read an image file as uint8 (C × H × W) of the given size, grey or in colour."""
    with _pillow().open(path) as image:
        return pixels_from_pil(image, size, grey).numpy()


def read_header(path: Path) -> tuple[tuple[int, int], bool]:
    """Return (height, width) after EXIF rotation and whether the image is grey, without decoding it."""
    with _pillow().open(path) as image:
        transposed = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        size = (image.width, image.height) if transposed else (image.height, image.width)
        return size, is_grey(image)


def _pillow() -> Any:
    """Import Pillow's main module."""
    with optional_package("pillow", "data"):
        from PIL import Image
    return Image


def map_files(
    function: Callable[[Path], Any], files: Sequence[Path], title: str, progress: bool | None
) -> Iterator[Any]:
    """Yield the result of a function for each file in order, or the exception that it raised."""

    def safe(path: Path) -> Any:
        try:
            return function(path)
        except Exception as error:  # Pillow raises many kinds of errors on broken files
            return error

    too_many_pixels = _pillow().DecompressionBombWarning
    with warnings.catch_warnings(), ThreadPoolExecutor(_WORKERS) as pool:
        warnings.simplefilter("ignore")  # about defects that do not prevent reading
        warnings.simplefilter("error", too_many_pixels)
        with progress_bar(title, len(files), progress) as advance:
            step = 512  # bounds the number of pending results
            for start in range(0, len(files), step):
                for result in pool.map(safe, files[start : start + step]):
                    advance(1)
                    yield result


def error_reason(error: Any) -> str:
    """Return a short reason why an image cannot be read."""
    text = first_line(error)
    return "not an image" if "cannot identify" in text else text


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


def png_from_image(image: Tensor, largest: int | None = None) -> bytes:
    """Encode an image (C × H × W), uint8 or floats in [0, 1], as PNG, shrunk to a largest side if given.

    >>> png_from_image(torch.zeros(1, 4, 4))[1:4]
    b'PNG'
    """
    pixels = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).round().to(torch.uint8)
    array = pixels[:3].permute(1, 2, 0).contiguous().numpy() if len(pixels) >= 3 else pixels[0].numpy()
    encoded = _pillow().fromarray(array)
    if largest is not None:
        encoded.thumbnail((largest, largest))
    stream = io.BytesIO()
    encoded.save(stream, "PNG", optimize=True)
    return stream.getvalue()


_SPLITS = {"train": ("train", "training"), "test": ("test", "testing", "val", "valid", "validation")}
_DEFAULT_SIZE = (64, 64)
CLASSES = "classes.json"
"""Optional file beside the class folders that defines their order and names."""
_REMEDY = "Repair or remove the file"


def read_folder(
    folder: Path,
    split: str = "train",
    *,
    labelled: bool = True,
    size: tuple[int, int] | None = None,
    strict: bool = False,
    progress: bool | None = None,
) -> Content:
    """Read the images of a folder, or a single image.

    Subfolders are classes; subfolders named `train` and `test` (or `val`) are splits. Images are scaled and
    centre-cropped to `size` (height, width); without it, they keep their size if it is the same for all and
    become 64 × 64 otherwise. Unreadable files are skipped and listed in the remarks, or rejected if
    `strict`. Results over a gigabyte are cached on disk.
    """
    files, labels, classes = _listed(_split_of(folder, split), labelled)
    headers = list(map_files(read_header, files, f"scanning {folder.name}", progress))
    readable = [header for header in headers if not isinstance(header, Exception)]
    sizes = {header[0] for header in readable}
    grey = all(header[1] for header in readable)
    remarks = []
    if not readable:
        got = f"{files[0]}: {error_reason(headers[0])}"
        raise FileFormatError("no image in the folder can be read", got=got, remedy=_REMEDY)
    if size is None:
        size = next(iter(sizes)) if len(sizes) == 1 else _DEFAULT_SIZE
    if sizes != {size}:
        given = f"{len(sizes)} sizes" if len(sizes) > 1 else "{} × {}".format(*next(iter(sizes)))
        remarks.append(f"images of {given} scaled and centre-cropped to {size[0]} × {size[1]}")
    shape = (len(files), 1 if grey else 3, *size)
    images, kept, errors = decode_images(files, shape, f"reading {folder.name}", progress)
    failed = [f"{files[index]} ({errors[index]})" for index in sorted(errors)]
    if failed and strict:
        raise FileFormatError("cannot read image", got=failed[0], remedy=_REMEDY)
    if failed:
        problem = f"{len(failed)} of {len(files)} images could not be read and are left out"
        remarks.append(f"{problem}: {listed(failed)}")
    kept_files = tuple(str(files[index]) for index in kept)
    kept_labels = None if labels is None else labels[kept]
    return Content("images", images, kept_labels, classes, tuple(remarks), kept_files)


def _split_of(folder: Path, split: str) -> Path:
    """Return the subfolder of a split if the folder consists of splits, else the folder itself."""
    if folder.is_file():
        return folder
    inside = {path.name.lower(): path for path in _subfolders(folder)}
    if not inside or not set(inside) <= {*_SPLITS["train"], *_SPLITS["test"]}:
        return folder  # a class may be called "test" if other subfolders are not splits
    for name in _SPLITS.get(split, (split,)):
        if name in inside:
            return inside[name]
    expected = f"one of {', '.join(inside)}"
    raise FileFormatError("unknown split", got=f"{split} of {folder}", expected=expected)


def _subfolders(folder: Path) -> list[Path]:
    """List subfolders in sorted order, except hidden ones and those of macOS archives."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name != "__MACOSX"
    )


def has_split(folder: Path, split: str) -> bool:
    """Return whether the folder has a subfolder for this split."""
    try:
        return folder.is_dir() and _split_of(folder, split) != folder
    except FileFormatError:
        return False


def _listed(folder: Path, labelled: bool) -> tuple[list[Path], NDArray[np.int64] | None, tuple[str, ...]]:
    """List the images in a reproducible order, with labels and class names if subfolders are classes."""
    if folder.is_file():
        return [folder], None, ()
    flat = _image_files(folder.iterdir())
    by_class = {path.name: _image_files(path.rglob("*")) for path in _subfolders(folder)}
    nested = [path for paths in by_class.values() for path in paths]
    if not labelled and (flat or nested):
        return [*flat, *nested], None, ()
    if flat and nested:
        name = next(name for name, paths in by_class.items() if paths)
        raise FileFormatError(
            "the folder mixes images with class folders",
            got=f"{flat[0].name} beside {name}/",
            expected="images in one folder per class, or images only",
        )
    if flat:
        return flat, None, ()
    if not nested:
        raise FileFormatError(
            "the folder contains no images",
            got=str(folder),
            expected="files such as .png or .jpg, in one folder per class or without labels",
        )
    if empty := [name for name, paths in by_class.items() if not paths]:
        got = f"the folder {folder / empty[0]}"
        raise FileFormatError("class folder has no images", got=got, remedy="Add images or remove it")
    names = {name: name for name in by_class}
    if (folder / CLASSES).is_file():
        names = _read_class_names(folder / CLASSES, by_class)
    groups = [by_class.get(name, []) for name in names]
    labels = np.concatenate([np.full(len(paths), number) for number, paths in enumerate(groups)])
    return [path for paths in groups for path in paths], labels, tuple(names.values())


def _image_files(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if path.is_file() and is_image_file(path))


def _read_class_names(file: Path, folders: Iterable[str]) -> dict[str, str]:
    """Read class names by folder, in label order: {folder: name, …}."""
    try:
        names = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise ValueError("expected a mapping from folders to names")
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError("cannot read class names", got=f"{file}: {error}") from None
    if unknown := [name for name in folders if name not in names]:
        raise FileFormatError("folder without a class name", got=f"{unknown[0]} is not in {file}")
    return names
