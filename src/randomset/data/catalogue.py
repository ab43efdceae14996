"""Named data sets: where their files are expected and how to obtain them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from randomset.errors import FileFormatError, RandomSetError

__all__ = ["KNOWN", "Entry", "data_folder", "files_of", "how_to_get", "is_present", "listing", "split_name"]


@dataclass(frozen=True)
class Entry:
    """A data set that is available by name.

    idx: folder of the idx files, for data sets published in that format
    file: file name of a data set that is a single table with the columns `label` and `text`
    hub: Hugging Face data set, followed by a colon and its configuration, if any
    image, label: columns of the Hugging Face data set
    torchvision: class in `torchvision.datasets`
    varied: whether image sizes vary, so that images are stored as files
    held: number of training samples that the paper holds out, and how many of those are for calibration
    advice: what else to know for obtaining the data
    """

    title: str
    idx: str = ""
    file: str = ""
    splits: tuple[str, ...] = ("train", "test")
    classes: tuple[str, ...] = ()
    hub: str = ""
    image: str = "image"
    label: str = "label"
    text: str = ""
    torchvision: str = ""
    varied: bool = False
    held: tuple[int, int] = (0, 0)
    advice: str = ""


_CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
_SYLLABLES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_DIGITS = tuple("0123456789")

KNOWN = {
    "mnist": Entry(
        "handwritten digits, 28 × 28 grey", "MNIST", classes=_DIGITS, hub="ylecun/mnist", held=(10000, 1000)
    ),
    "fashion-mnist": Entry(
        "clothes, 28 × 28 grey", "FashionMNIST", classes=_CLOTHES, hub="zalando-datasets/fashion_mnist"
    ),
    "kmnist": Entry("cursive Japanese, 28 × 28 grey", "KMNIST", classes=_SYLLABLES, hub="tanganke/kmnist"),
    "cifar10": Entry(
        "ten classes of objects, 32 × 32 colour", hub="uoft-cs/cifar10", image="img", held=(10000, 1000)
    ),
    "cifar100": Entry(
        "a hundred classes of objects, 32 × 32 colour",
        hub="uoft-cs/cifar100",
        image="img",
        label="fine_label",
        held=(10000, 1000),
    ),
    "svhn": Entry("house numbers, 32 × 32 colour", hub="ufldl-stanford/svhn:cropped_digits"),
    "intel": Entry(
        "six classes of scenes, colour",
        hub="sfarrukhm/intel-image-classification",
        varied=True,
        held=(100, 0),
    ),
    "imagenet": Entry(
        "a thousand classes of objects, colour",
        splits=("train", "val"),
        hub="ILSVRC/imagenet-1k",
        varied=True,
        held=(108669, 0),
        advice="accept its licence there first",
    ),
    "imagenet-o": Entry(
        "objects outside the ImageNet classes, colour", splits=("test",), hub="cais/imagenet-o", varied=True
    ),
    "imagenette": Entry("ten classes of ImageNet, colour", splits=("train", "val"), torchvision="Imagenette"),
    "bbc": Entry(
        "news in five categories, English text",
        file="bbc-text.csv",
        splits=("train",),
        hub="SetFit/bbc-news",
        label="category",
        text="text",
    ),
    "emotion": Entry(
        "tweets with thirteen emotions, English text",
        file="tweet_emotions.csv",
        splits=("train",),
        label="sentiment",
        text="content",
        advice="published as tweet_emotions.csv",
    ),
}


def data_folder() -> Path:
    """Return the folder given by RANDOMSET_DATA, or `randomset` in the user's cache."""
    if given := os.environ.get("RANDOMSET_DATA"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "randomset"


def split_name(name: str, split: str) -> str:
    """Return the data set's own name of a split: its last split for "test", or its only one."""
    if name not in KNOWN:
        raise RandomSetError("unknown data set", got=name, expected=f"one of digits, {', '.join(KNOWN)}")
    splits = KNOWN[name].splits
    own = splits[-1] if split == "test" or len(splits) == 1 else split
    if own not in splits:
        raise RandomSetError("unknown split", got=split, expected=" or ".join(splits))
    return own


def _candidate_files(name: str, split: str) -> list[list[Path]]:
    """Return the files that a split may consist of: one list per supported format."""
    known, folder, split = KNOWN[name], data_folder(), split_name(name, split)
    candidates = [[folder / f"{name}-{split}.npz"], [folder / name / split]]
    if known.idx:
        stem, raw = "train" if split == "train" else "t10k", folder / known.idx / "raw"
        for suffix in ("ubyte", "ubyte.gz"):
            files = [raw / f"{stem}-{part}-{suffix}" for part in ("images-idx3", "labels-idx1")]
            candidates.insert(0, files)
    if known.file:
        return [[folder / known.file]]
    if len(known.splits) == 1:
        candidates.append([folder / name])
    return candidates


def files_of(name: str, split: str) -> list[Path]:
    """Return the files of a split; the error lists where they are expected and how to obtain them."""
    candidates = _candidate_files(name, split)
    for files in candidates:
        if all(path.exists() for path in files):
            return files
    for files in candidates:
        if any(path.exists() for path in files):
            missing = next(path for path in files if not path.exists())
            raise FileFormatError(
                f"data set {name} is incomplete",
                got=f"no file {missing}",
                remedy="Put the file there as published by its authors",
            )
    raise FileFormatError(
        f"data set {name} not found",
        got=f"no file {' and '.join(map(str, candidates[0]))}",
        remedy=f"{how_to_get(name)}, or put its files there (RANDOMSET_DATA sets the folder)",
    )


def is_present(name: str, split: str) -> bool:
    """Return whether the files of a split are complete."""
    return any(all(path.exists() for path in files) for files in _candidate_files(name, split))


def how_to_get(name: str) -> str:
    """Return instructions for obtaining a data set."""
    known = KNOWN[name]
    advice = f" ({known.advice})" if known.advice else ""
    if not known.hub and not known.torchvision:
        return f"Obtain it from its authors{advice}"
    origin = f"{known.hub.split(':')[0]} from Hugging Face" if known.hub else "it with torchvision"
    return f"Download {origin} with: randomset data --download {name}{advice}"


def listing() -> list[tuple[str, str, str]]:
    """Return the name, title and available splits of every named data set."""
    rows = [("digits", "handwritten digits from scikit-learn, 8 × 8 grey", "built in")]
    for name, known in KNOWN.items():
        present = [split for split in known.splits if is_present(name, split)]
        status = "found" if present and len(known.splits) == 1 else " and ".join(present)
        rows.append((name, known.title, status or "not found"))
    return rows
