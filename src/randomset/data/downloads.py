"""Download named data sets with Hugging Face `datasets` or torchvision, which verify the files."""

from __future__ import annotations

import csv
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from randomset._core.batches import progress_bar
from randomset._core.files import replacing
from randomset._core.packages import optional_package
from randomset._core.pixels import pixels_from_pil
from randomset._core.torchvision import torchvision
from randomset.data.catalogue import KNOWN, data_folder, how_to_get, is_present
from randomset.data.images import CLASSES
from randomset.errors import FileFormatError, RandomSetError, first_line

__all__ = ["download"]

_logger = logging.getLogger(__name__)


def download(name: str, progress: bool | None = None) -> list[Path]:
    """Download the missing splits of a data set to the data folder; return the files written.

    The libraries verify published sizes and checksums; a split appears only once it is complete.
    """
    if name not in KNOWN:
        raise RandomSetError("unknown data set", got=name, expected=f"one of {', '.join(KNOWN)}")
    known, written = KNOWN[name], []
    data_folder().mkdir(parents=True, exist_ok=True)
    for split in known.splits:
        if is_present(name, split):
            _logger.info("%s %s is already present.", name, split)
        elif known.hub:
            written.append(_from_huggingface(name, split, progress))
        elif known.torchvision:
            written.append(_from_torchvision(name, split))
        else:
            raise FileFormatError(f"cannot download {name}", remedy=how_to_get(name))
    return written


def _from_huggingface(name: str, split: str, progress: bool | None) -> Path:
    known = KNOWN[name]
    with optional_package("datasets", "data"):
        import datasets
    repository, _, configuration = known.hub.partition(":")
    hub_split = {"val": "validation"}.get(split, split)
    _logger.info("Downloading %s (%s) from Hugging Face …", repository, hub_split)
    try:
        rows = datasets.load_dataset(
            repository,
            configuration or None,
            split=None if known.text else hub_split,
            verification_mode="all_checks",
        )
    except Exception as error:  # network, hub and licence problems raise many kinds of errors
        raise FileFormatError(
            f"cannot download {name}",
            got=f"{repository}: {first_line(error)}",
            remedy="Check your connection" + (f"; {known.advice}" if known.advice else ""),
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
        for image in rows[known.image]:
            images.append(pixels_from_pil(image).numpy())
            advance(1)
    labels = np.asarray(rows[known.label])
    classes = known.classes or tuple(rows.features[known.label].names)
    with replacing(target) as temporary, temporary.open("wb") as file:
        np.savez(file, images=np.stack(images), labels=labels, classes=np.array(classes))
    return target


def _write_files(name: str, split: str, rows: Any, progress: bool | None) -> Path:
    """Write the published image files, one folder per class."""
    import datasets

    known = KNOWN[name]
    target = data_folder() / name / split
    names = rows.features[known.label].names if known.label in rows.features else None
    raw = rows.cast_column(known.image, datasets.Image(decode=False))
    with (
        _replacing_folder(target) as temporary,
        progress_bar(f"writing {name}", len(raw), progress) as advance,
    ):
        for index, row in enumerate(raw):
            image = row[known.image]
            content = image["bytes"] or Path(image["path"]).read_bytes()
            folder = temporary if names is None else temporary / _folder_name(names[row[known.label]])
            folder.mkdir(exist_ok=True)
            suffix = Path(image["path"] or "").suffix or ".jpg"
            (folder / f"{index:07d}{suffix}").write_bytes(content)
            advance(1)
        if names is not None:
            _write_classes(temporary, {_folder_name(name): name for name in names})
    return target


def _write_classes(folder: Path, names: Mapping[str, str]) -> None:
    """Write the class names by folder in label order, which may differ from the alphabetical order."""
    (folder / CLASSES).write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")


def _folder_name(name: str) -> str:
    """Return a class name that is safe as the name of a single folder."""
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


def _from_torchvision(name: str, split: str) -> Path:
    known, target = KNOWN[name], data_folder() / name / split
    factory = getattr(torchvision().datasets, known.torchvision)
    _logger.info("Downloading %s (%s) with torchvision …", known.torchvision, split)
    with tempfile.TemporaryDirectory(dir=data_folder()) as folder:
        try:
            data = factory(folder, split=split, size="160px", download=True)
        except (OSError, RuntimeError) as error:
            raise FileFormatError(f"cannot download {name}", got=first_line(error)) from None
        with _replacing_folder(target) as temporary:
            for wnid, names in zip(data.wnids, data.classes, strict=True):
                shutil.move(Path(folder) / "imagenette2-160" / split / wnid, temporary / names[0])
            _write_classes(temporary, {names[0]: names[0] for names in data.classes})
    return target


@contextmanager
def _replacing_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that is moved to the target on success and deleted on error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as temporary:
        folder = Path(temporary) / "folder"
        folder.mkdir()
        yield folder
        os.replace(folder, target)
