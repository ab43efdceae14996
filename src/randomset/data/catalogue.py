"""The data sets that are known by name: where their files are looked for, and how to get them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from randomset.errors import FileFormatError, RandomSetError

__all__ = ["KNOWN", "Known", "data_folder", "files_of", "listing"]

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Known:
    """A data set with a name."""

    title: str
    folder: str = ""
    """Of sets in idx files, the folder that they are in."""
    splits: tuple[str, ...] = ("train", "test")
    classes: tuple[str, ...] = ()


_CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
_SYLLABLES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_DIGITS = tuple("0123456789")

KNOWN = {
    "mnist": Known("handwritten digits, 28 × 28 grey", "MNIST", classes=_DIGITS),
    "fashion-mnist": Known("clothes, 28 × 28 grey", "FashionMNIST", classes=_CLOTHES),
    "kmnist": Known("cursive Japanese, 28 × 28 grey", "KMNIST", classes=_SYLLABLES),
    "cifar10": Known("ten kinds of objects, 32 × 32 colour"),
    "cifar100": Known("a hundred kinds of objects, 32 × 32 colour"),
    "svhn": Known("house numbers, 32 × 32 colour"),
    "intel": Known("six kinds of scenes, colour"),
    "imagenette": Known("ten classes of ImageNet, colour", splits=("train", "val")),
}


def data_folder() -> Path | None:
    """Return the folder that RANDOMSET_DATA names, if it does."""
    named = os.environ.get("RANDOMSET_DATA")
    return Path(named).expanduser() if named else None


def files_of(name: str, split: str) -> list[Path]:
    """Return the files of a split, images and labels or one archive, or say where they were looked for."""
    if name not in KNOWN:
        raise RandomSetError("unknown data set", got=name, expected=f"one of digits, {', '.join(KNOWN)}")
    known, folder = KNOWN[name], data_folder()
    split = {"test": known.splits[-1]}.get(split, split)
    if split not in known.splits:
        raise RandomSetError("the data set has no such split", got=split, expected=" or ".join(known.splits))
    wanted = _wanted(name, split)
    if folder is None:
        raise FileFormatError(
            f"the data set {name} is not here",
            got="no folder in RANDOMSET_DATA",
            remedy=f"Set RANDOMSET_DATA to a folder with {' and '.join(map(str, wanted))}",
        )
    found = []
    for path in wanted:
        choices = [folder / path, folder / path.with_suffix("") if path.suffix == ".gz" else folder / path]
        present = next((choice for choice in choices if choice.is_file()), None)
        if present is None:
            raise FileFormatError(
                f"the data set {name} is not whole here",
                got=f"no file {folder / path}",
                remedy="Put it there, as its authors publish it",
            )
        found.append(present)
    return found


def listing() -> list[tuple[str, str, str]]:
    """Return name, title and what is present of every known data set."""
    rows = [("digits", "handwritten digits of scikit-learn, 8 × 8 grey", "always here")]
    for name, known in KNOWN.items():
        present = []
        for split in known.splits:
            try:
                files_of(name, split)
                present.append(split)
            except FileFormatError:
                continue
        rows.append((name, known.title, " and ".join(present) or "not found"))
    return rows


def _wanted(name: str, split: str) -> list[Path]:
    known = KNOWN[name]
    if not known.folder:
        return [Path(f"{name}-{split}.npz")]
    stem = "train" if split == "train" else "t10k"
    raw = Path(known.folder) / "raw"
    return [raw / f"{stem}-images-idx3-ubyte.gz", raw / f"{stem}-labels-idx1-ubyte.gz"]
