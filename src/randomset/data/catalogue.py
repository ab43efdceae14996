"""The data sets that are known by name: where their files are looked for, and how to get them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from randomset.errors import FileFormatError, RandomSetError

__all__ = ["KNOWN", "Known", "data_folder", "files_of", "listing", "split_name", "wanted_files"]


@dataclass(frozen=True)
class Known:
    """A data set with a name.

    idx: of sets that are published as idx files, the folder that these are in
    file: of sets that are one table, its name, with `label` and `text`, two of its columns
    hub: its address among Hugging Face's data sets, with a configuration behind a colon
    image, label: the columns there; torchvision: its class there
    varied: whether its images are of many sizes, so that they are kept as files
    held: how many training samples the paper validates on, and how many of those calibrate
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
    "mnist": Known(
        "handwritten digits, 28 × 28 grey", "MNIST", classes=_DIGITS, hub="ylecun/mnist", held=(10000, 1000)
    ),
    "fashion-mnist": Known(
        "clothes, 28 × 28 grey", "FashionMNIST", classes=_CLOTHES, hub="zalando-datasets/fashion_mnist"
    ),
    "kmnist": Known("cursive Japanese, 28 × 28 grey", "KMNIST", classes=_SYLLABLES, hub="tanganke/kmnist"),
    "cifar10": Known(
        "ten kinds of objects, 32 × 32 colour", hub="uoft-cs/cifar10", image="img", held=(10000, 1000)
    ),
    "cifar100": Known(
        "a hundred kinds of objects, 32 × 32 colour",
        hub="uoft-cs/cifar100",
        image="img",
        label="fine_label",
        held=(10000, 1000),
    ),
    "svhn": Known("house numbers, 32 × 32 colour", hub="ufldl-stanford/svhn:cropped_digits"),
    "intel": Known(
        "six kinds of scenes, colour", hub="sfarrukhm/intel-image-classification", varied=True, held=(100, 0)
    ),
    "imagenet": Known(
        "a thousand kinds of objects, colour",
        splits=("train", "val"),
        hub="ILSVRC/imagenet-1k",
        varied=True,
        held=(108669, 0),
        advice="its licence must be accepted there first",
    ),
    "imagenet-o": Known(
        "objects of no ImageNet class, colour", splits=("test",), hub="cais/imagenet-o", varied=True
    ),
    "imagenette": Known("ten classes of ImageNet, colour", splits=("train", "val"), torchvision="Imagenette"),
    "bbc": Known(
        "news of five kinds, English text",
        file="bbc-text.csv",
        splits=("train",),
        hub="SetFit/bbc-news",
        label="category",
        text="text",
    ),
    "emotion": Known(
        "tweets of thirteen emotions, English text",
        file="tweet_emotions.csv",
        splits=("train",),
        label="sentiment",
        text="content",
        advice="it is published as tweet_emotions.csv",
    ),
}


def data_folder() -> Path:
    """Return the folder that RANDOMSET_DATA names, or one of our own in the user's cache."""
    named = os.environ.get("RANDOMSET_DATA")
    return Path(named or os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / (
        "" if named else "randomset"
    )


def split_name(name: str, split: str) -> str:
    """Return a split as the data set calls it: its last one for "test", its only one for everything."""
    if name not in KNOWN:
        raise RandomSetError("unknown data set", got=name, expected=f"one of digits, {', '.join(KNOWN)}")
    splits = KNOWN[name].splits
    found = splits[-1] if split == "test" or len(splits) == 1 else split
    if found not in splits:
        raise RandomSetError("the data set has no such split", got=split, expected=" or ".join(splits))
    return found


def wanted_files(name: str, split: str) -> list[list[Path]]:
    """Return the files of a split as they may lie in the data folder: one list for each form."""
    known, folder, split = KNOWN[name], data_folder(), split_name(name, split)
    forms = [[folder / f"{name}-{split}.npz"], [folder / name / split]]
    if known.idx:
        stem, raw = "train" if split == "train" else "t10k", folder / known.idx / "raw"
        for ending in ("", ".gz"):
            forms.insert(0, [raw / f"{stem}-{part}-ubyte{ending}" for part in ("images-idx3", "labels-idx1")])
    if known.file:
        forms = [[folder / known.file]]
    if len(known.splits) == 1 and not known.file:
        forms.append([folder / name])
    return forms


def files_of(name: str, split: str) -> list[Path]:
    """Return the files of a split, or say where they were looked for and how to get them."""
    forms = wanted_files(name, split)
    for form in forms:
        if all(path.exists() for path in form):
            return form
    for form in forms:
        if any(path.exists() for path in form):
            missing = next(path for path in form if not path.exists())
            raise FileFormatError(
                f"the data set {name} is not whole here",
                got=f"no file {missing}",
                remedy="Put it there, as its authors publish it",
            )
    raise FileFormatError(
        f"the data set {name} is not here",
        got=f"no file {' and '.join(map(str, forms[0]))}",
        remedy=f"{how_to_get(name)}, or put its files there (RANDOMSET_DATA names the folder)",
    )


def how_to_get(name: str) -> str:
    """Say how a data set can be had."""
    known = KNOWN[name]
    extra = f" ({known.advice})" if known.advice else ""
    if known.hub:
        return (
            f"Get {known.hub.split(':')[0]} from Hugging Face with: randomset data --download {name}{extra}"
        )
    if known.torchvision:
        return f"Get it through torchvision with: randomset data --download {name}{extra}"
    return f"Get it from its authors{extra}"


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
        here = "here" if present and len(known.splits) == 1 else " and ".join(present)
        rows.append((name, known.title, here or "not found"))
    return rows
