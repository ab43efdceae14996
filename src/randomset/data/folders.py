"""Image folders: one subfolder per class, or a flat folder of unlabelled images."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from randomset.data.images import decode_images, error_reason, is_image_file, map_files, read_header
from randomset.errors import FileFormatError

__all__ = ["CLASSES", "ImageFolder", "has_split", "read_folder"]

_SPLITS = {"train": ("train", "training"), "test": ("test", "testing", "val", "valid", "validation")}
_DEFAULT_SIZE = (64, 64)
CLASSES = "classes.json"
"""Optional file beside the class folders that defines their order and names."""
_REMEDY = "Repair or remove the file"


@dataclass(frozen=True)
class ImageFolder:
    """The content of a folder: images (n × C × H × W) as uint8, their files, and labels if any."""

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
) -> ImageFolder:
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
        more = f" and {len(failed) - 10} more" if len(failed) > 10 else ""
        remarks.append(
            f"{len(failed)} of {len(files)} images could not be read and are left out: "
            f"{'; '.join(failed[:10])}{more}"
        )
    kept_files = tuple(str(files[index]) for index in kept)
    return ImageFolder(images, kept_files, None if labels is None else labels[kept], classes, tuple(remarks))


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
