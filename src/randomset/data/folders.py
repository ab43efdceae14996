"""Folders of images: one folder for each class, or all in one place for images without labels."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset.belief.storage import replacing
from randomset.data.arrays import LARGE
from randomset.data.catalogue import data_folder
from randomset.errors import FileFormatError, MissingPackageError, RandomSetError
from randomset.progress import progress_bar

__all__ = ["CLASSES", "Pictures", "has_split", "is_picture", "pixels_from_picture", "read_folder"]

_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff"}
_SPLITS = {"train": ("train", "training"), "test": ("test", "testing", "val", "valid", "validation")}
_SIDE = 64
CLASSES = "classes.json"
"""A file beside the folders of classes that says their order, where it is not that of their names."""
_WORKERS = 2


@dataclass(frozen=True)
class Pictures:
    """What a folder holds: bytes (n × C × H × W), their files, and labels where folders are classes."""

    images: Tensor
    files: tuple[str, ...]
    labels: NDArray[np.int64] | None
    classes: tuple[str, ...]
    remarks: tuple[str, ...]


def read_folder(
    folder: Path,
    split: str = "train",
    *,
    labelled: bool = True,
    size: tuple[int, int] | None = None,
    strict: bool = False,
    progress: bool | None = None,
) -> Pictures:
    """Read the images of a folder, two at a time; or one image.

    Folders inside are classes, named by them; `train` and `test` (or `val`) inside are splits. Images of one
    size keep it; others, or all with a `size` (height, width), are scaled and cropped about their centre, to
    64 × 64 without one. A file that cannot be read is left out and named in the remarks, or with `strict`
    refused. What is larger than a gigabyte is kept decoded on disk, and found there the next time.
    """
    files, labels, classes = _listed(_split_of(folder, split), labelled)
    headers = _side_by_side(_header, files, f"looking at {folder.name}", progress)
    sizes = {found[0] for found in headers if not isinstance(found, Exception)}
    grey = all(found[1] for found in headers if not isinstance(found, Exception))
    remarks = []
    if not sizes:
        raise FileFormatError(
            "no image of the folder can be read", got=f"{files[0]}: {_reason(headers[0])}", remedy=_HINT
        )
    if size is None:
        size = next(iter(sizes)) if len(sizes) == 1 else (_SIDE, _SIDE)
    if sizes != {size}:
        seen = f"{len(sizes)} sizes" if len(sizes) > 1 else "{} × {}".format(*next(iter(sizes)))
        remarks.append(f"images of {seen} scaled to cover {size[0]} × {size[1]} and cropped about the centre")
    shape = (len(files), 1 if grey else 3, *size)
    images, kept, reasons = _decoded(files, shape, f"reading {folder.name}", progress)
    lost = [(files[place], reasons[place]) for place in sorted(reasons)]
    if lost and strict:
        raise FileFormatError("an image cannot be read", got=f"{lost[0][0]}: {lost[0][1]}", remedy=_HINT)
    if lost:
        named = "; ".join(f"{path} ({reason})" for path, reason in lost[:10])
        more = f" and {len(lost) - 10} more" if len(lost) > 10 else ""
        remarks.append(
            f"{len(lost)} of {len(files)} images could not be read and are left out: {named}{more}"
        )
    return Pictures(
        images,
        tuple(str(files[place]) for place in kept),
        None if labels is None else labels[kept],
        classes,
        tuple(remarks),
    )


_HINT = "Mend or remove it"


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


def _split_of(folder: Path, split: str) -> Path:
    """Go into the folder of a split, where there are such."""
    if folder.is_file():
        return folder
    inside = {path.name.lower(): path for path in folder.iterdir() if path.is_dir() and not _is_hidden(path)}
    if not any(name in inside for name in _SPLITS["train"] + _SPLITS["test"]):
        return folder
    if not all(name in _SPLITS["train"] + _SPLITS["test"] for name in inside):
        return folder  # a class may be called "test" where others are not splits
    for name in _SPLITS.get(split, (split,)):
        if name in inside:
            return inside[name]
    raise FileFormatError(
        "the folder has no such split", got=f"{split} of {folder}", expected=f"one of {', '.join(inside)}"
    )


def _is_hidden(path: Path) -> bool:
    """Say whether other programs left this behind."""
    return path.name.startswith(".") or path.name == "__MACOSX"


def has_split(folder: Path, split: str) -> bool:
    """Say whether a folder holds this split beside another."""
    try:
        return folder.is_dir() and _split_of(folder, split) != folder
    except FileFormatError:
        return False


def _listed(folder: Path, labelled: bool) -> tuple[list[Path], NDArray[np.int64] | None, tuple[str, ...]]:
    """List the images in an order that is the same everywhere, with the classes that are folders."""
    if folder.is_file():
        return [folder], None, ()
    flat = sorted(path for path in folder.iterdir() if path.is_file() and is_picture(path))
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not _is_hidden(path))
    each = [sorted(path for path in one.rglob("*") if path.is_file() and is_picture(path)) for one in classes]
    if not labelled and (flat or any(each)):
        return [*flat, *(path for paths in each for path in paths)], None, ()
    if flat and any(each):
        full = next(one.name for one, paths in zip(classes, each, strict=True) if paths)
        raise FileFormatError(
            "the folder has images beside folders of classes",
            got=f"{flat[0].name} beside {full}/",
            expected="images in folders named by their class, or images alone",
        )
    if flat:
        return flat, None, ()
    if not any(each):
        raise FileFormatError(
            "the folder holds no images",
            got=str(folder),
            expected="files such as .png or .jpg, in one folder for each class or without labels",
        )
    if empty := [one.name for one, paths in zip(classes, each, strict=True) if not paths]:
        raise FileFormatError(
            "a class has no images", got=f"the folder {folder / empty[0]}", remedy="Fill or remove it"
        )
    names = {one.name: one.name for one in classes}
    if (folder / CLASSES).is_file():
        names, each = _ordered(folder / CLASSES, dict(zip(names, each, strict=True)))
    labels = np.concatenate([np.full(len(paths), number) for number, paths in enumerate(each)])
    return [path for paths in each for path in paths], labels, tuple(names.values())


def _ordered(file: Path, found: dict[str, list[Path]]) -> tuple[dict[str, str], list[list[Path]]]:
    """Bring classes into the order, and give them the names, that a file says: {folder: name, …}."""
    try:
        names = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise ValueError("no names by folder")
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError("the order of the classes cannot be read", got=f"{file}: {error}") from None
    if strange := [name for name in found if name not in names]:
        raise FileFormatError("a folder is no class", got=f"{strange[0]} is not in {file}")
    return names, [found.get(name, []) for name in names]


def _decoded(
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
    for place, found in enumerate(_each(lambda path: _pixels(path, size, grey), files, what, progress)):
        if isinstance(found, Exception):
            lost[place] = _reason(found)
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


def _pixels(path: Path, size: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    with _opened(path) as picture:
        return pixels_from_picture(picture, size, grey).numpy()


def _header(path: Path) -> tuple[tuple[int, int], bool]:
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


def _side_by_side(
    function: Callable[[Path], Any], files: Sequence[Path], what: str, progress: bool | None
) -> list[Any]:
    return list(_each(function, files, what, progress))


def _each(
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


def _reason(error: Any) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "no image" if "cannot identify" in text else text
