"""Folders of images: one folder for each class, or all in one place for images without labels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from randomset.data.decoding import decoded
from randomset.data.pictures import each_file, header_of, is_picture, pixels_from_picture, reason_of
from randomset.errors import FileFormatError

__all__ = ["CLASSES", "Pictures", "has_split", "is_picture", "pixels_from_picture", "read_folder"]

_SPLITS = {"train": ("train", "training"), "test": ("test", "testing", "val", "valid", "validation")}
_SIDE = 64
CLASSES = "classes.json"
"""A file beside the folders of classes that says their order, where it is not that of their names."""
_HINT = "Mend or remove it"


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
    headers = list(each_file(header_of, files, f"looking at {folder.name}", progress))
    sizes = {found[0] for found in headers if not isinstance(found, Exception)}
    grey = all(found[1] for found in headers if not isinstance(found, Exception))
    remarks = []
    if not sizes:
        raise FileFormatError(
            "no image of the folder can be read", got=f"{files[0]}: {reason_of(headers[0])}", remedy=_HINT
        )
    if size is None:
        size = next(iter(sizes)) if len(sizes) == 1 else (_SIDE, _SIDE)
    if sizes != {size}:
        seen = f"{len(sizes)} sizes" if len(sizes) > 1 else "{} × {}".format(*next(iter(sizes)))
        remarks.append(f"images of {seen} scaled to cover {size[0]} × {size[1]} and cropped about the centre")
    shape = (len(files), 1 if grey else 3, *size)
    images, kept, reasons = decoded(files, shape, f"reading {folder.name}", progress)
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
