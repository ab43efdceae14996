"""Fetching a known data set, through libraries that check it: Hugging Face's `datasets`, or torchvision."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from randomset._core.files import replacing
from randomset._core.progress import progress_bar
from randomset.data.catalogue import KNOWN, data_folder, files_of, how_to_get
from randomset.data.folders import CLASSES
from randomset.data.pictures import pixels_from_picture
from randomset.errors import FileFormatError, MissingPackageError, RandomSetError

__all__ = ["download"]


def download(
    name: str, say: Callable[[str], object] = lambda text: None, progress: bool | None = None
) -> list[Path]:
    """Fetch the splits of a data set that are not here into the data folder; return what was written.

    The libraries check what they fetch against the sizes and checksums that are published with it; a split is
    moved to its place once it is whole.
    """
    if name not in KNOWN:
        raise RandomSetError("unknown data set", got=name, expected=f"one of {', '.join(KNOWN)}")
    known, written = KNOWN[name], []
    data_folder().mkdir(parents=True, exist_ok=True)
    for split in known.splits:
        try:
            files_of(name, split)
            say(f"{name} {split} is here already.")
            continue
        except FileFormatError:
            pass
        if known.hub:
            written.append(_from_hub(name, split, say, progress))
        elif known.torchvision:
            written.append(_from_torchvision(name, split, say))
        else:
            raise FileFormatError(f"the data set {name} cannot be fetched", remedy=how_to_get(name))
    return written


def _from_hub(name: str, split: str, say: Callable[[str], object], progress: bool | None) -> Path:
    known = KNOWN[name]
    try:
        import datasets
    except ImportError:
        raise MissingPackageError("datasets", "data") from None
    address, _, configuration = known.hub.partition(":")
    there = {"val": "validation"}.get(split, split)
    say(f"Fetching {address}, {there}, from Hugging Face …")
    try:
        rows = datasets.load_dataset(
            address,
            configuration or None,
            split=None if known.text else there,
            verification_mode="all_checks",
        )
    except Exception as error:  # of the network, the hub, a licence: many kinds, which it explains itself
        raise FileFormatError(
            f"the data set {name} cannot be fetched",
            got=f"{address}: {(str(error) or type(error).__name__).splitlines()[0]}",
            remedy="Check the connection" + (f"; {known.advice}" if known.advice else ""),
        ) from None
    if known.text:
        return _write_table(name, rows)
    if known.varied:
        return _write_files(name, split, rows, progress)
    return _write_arrays(name, split, rows, progress)


def _write_arrays(name: str, split: str, rows: Any, progress: bool | None) -> Path:
    known, target = KNOWN[name], data_folder() / f"{name}-{split}.npz"
    images = []
    with progress_bar(f"decoding {name}", len(rows), progress) as advance:
        for picture in rows[known.image]:
            images.append(pixels_from_picture(picture).numpy())
            advance(1)
    labels = np.asarray(rows[known.label])
    classes = known.classes or tuple(rows.features[known.label].names)
    with replacing(target) as temporary, temporary.open("wb") as file:
        np.savez(file, images=np.stack(images), labels=labels, classes=np.array(classes))
    return target


def _write_files(name: str, split: str, rows: Any, progress: bool | None) -> Path:
    """Write the images as they are published, one folder for each class."""
    import datasets

    known = KNOWN[name]
    target = data_folder() / name / split
    names = rows.features[known.label].names if known.label in rows.features else None
    raw = rows.cast_column(known.image, datasets.Image(decode=False))
    with _whole_folder(target) as temporary, progress_bar(f"writing {name}", len(raw), progress) as advance:
        for place, row in enumerate(raw):
            image = row[known.image]
            content = image["bytes"] or Path(image["path"]).read_bytes()
            folder = temporary if names is None else temporary / _folder_name(names[row[known.label]])
            folder.mkdir(exist_ok=True)
            ending = Path(image["path"] or "image.jpg").suffix or ".jpg"
            (folder / f"{place:07d}{ending}").write_bytes(content)
            advance(1)
        if names is not None:  # folders are read in the order of their names, labels are not
            order = {_folder_name(name): name for name in names}
            (temporary / CLASSES).write_text(json.dumps(order, ensure_ascii=False), encoding="utf-8")
    return target


def _folder_name(name: str) -> str:
    """Return a class's name as that of one folder, which lies nowhere else."""
    plain = name.replace("/", "-").replace("\\", "-").replace("\0", "-")
    return f"-{plain}" if plain.startswith(".") else plain or "-"


def _write_table(name: str, splits: Any) -> Path:
    known = KNOWN[name]
    target = data_folder() / known.file
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([known.label, known.text])
        for rows in splits.values():
            label = "label_text" if "label_text" in rows.column_names else "label"
            writer.writerows(zip(rows[label], rows["text"], strict=True))
    return target


def _from_torchvision(name: str, split: str, say: Callable[[str], object]) -> Path:
    from randomset._core.torchvision import torchvision

    known, target = KNOWN[name], data_folder() / name / split
    vision = torchvision()
    say(f"Fetching {known.torchvision}, {split}, through torchvision …")
    with tempfile.TemporaryDirectory(dir=data_folder()) as folder:
        try:
            found = getattr(vision.datasets, known.torchvision)(
                folder, split=split, size="160px", download=True
            )
        except (OSError, RuntimeError) as error:
            raise FileFormatError(
                f"the data set {name} cannot be fetched", got=str(error).splitlines()[0]
            ) from None
        with _whole_folder(target) as temporary:
            for wnid, names in zip(found.wnids, found.classes, strict=True):
                shutil.move(Path(folder) / "imagenette2-160" / split / wnid, temporary / names[0])
            order = {names[0]: names[0] for names in found.classes}
            (temporary / CLASSES).write_text(json.dumps(order, ensure_ascii=False), encoding="utf-8")
    return target


@contextmanager
def _whole_folder(target: Path) -> Iterator[Path]:
    """Give a folder to fill; it takes its place once it is whole, or vanishes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as temporary:
        inside = Path(temporary) / "whole"
        inside.mkdir()
        yield inside
        os.replace(inside, target)
