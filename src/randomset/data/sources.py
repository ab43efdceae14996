"""Sources of labelled data: names, files, folders and data sets in Python become one thing, a `Source`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from randomset._core.labels import encoded_labels
from randomset._core.splits import stratified_parts
from randomset.data.arrays import images_from_array, inputs_from_arrays, read_arrays
from randomset.data.catalogue import KNOWN, files_of
from randomset.data.downloads import download as fetch
from randomset.data.folders import read_folder
from randomset.data.frames import read_table
from randomset.data.idx import read_idx
from randomset.data.pictures import is_picture
from randomset.data.rows import HubRows, gathered, is_hub
from randomset.errors import FileFormatError, LabelError, RandomSetError

__all__ = ["Source", "load_inputs", "load_source"]

Kind = Literal["images", "features", "text", "tokens"]


@dataclass(frozen=True)
class Source:
    """Inputs, labels and the names of the classes.

    Images are (n × C × H × W), bytes or floats; features are (n × F); texts are a list, or numbers of tokens
    (n × T) filled up with −1. Labels are class indices (n), −1 where there is none, or a mask of set-valued
    labels (n × N). `remarks` say what was done to the data, `files` where each input comes from if each has a
    file of its own, `columns` how the features of a table are called, `rows` where each input stands in a
    table of which some rows were left out.
    """

    name: str
    kind: Kind
    inputs: Any
    labels: Tensor
    classes: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    files: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    rows: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        form = "texts" if self.kind == "text" else f"{self.kind} of shape {tuple(self.inputs.shape[1:])}"
        return f"Source({self.name}: {len(self)} {form}, {len(self.classes)} classes)"

    @property
    def labelled(self) -> bool:
        """Whether every input has a label."""
        return self.labels.dim() == 2 or bool((self.labels >= 0).all())

    def split(self, *shares: float, seed: int = 0) -> list[Tensor]:
        """Return the places of a rest and of parts of the given shares, each class in the same proportions.

        They depend on the seed and the labels alone, on every machine.
        """
        key = (
            self.labels
            if self.labels.dim() == 1
            else torch.unique(self.labels, dim=0, return_inverse=True)[1]
        )
        return [torch.from_numpy(part) for part in stratified_parts(key.numpy(), shares, seed)]

    def part(self, places: Tensor) -> Source:
        """Return the samples at some places."""
        rows = places.tolist()
        inputs = [self.inputs[row] for row in rows] if self.kind == "text" else self.inputs[places]
        files = None if self.files is None else tuple(self.files[row] for row in rows)
        kept = None if self.rows is None else tuple(self.rows[row] for row in rows)
        return replace(self, inputs=inputs, labels=self.labels[places], files=files, rows=kept)

    def aligned(self, classes: Sequence[str]) -> Source:
        """Number the labels by other classes with the same names, such as those that a network knows."""
        if tuple(classes) == self.classes:
            return self
        place = {name: number for number, name in enumerate(classes)}
        mask = self.labels.dim() == 2
        codes = self.labels.any(0).nonzero()[:, 0] if mask else self.labels[self.labels >= 0].unique()
        present = [self.classes[code] for code in codes.tolist()]
        if strange := [name for name in present if name not in place]:
            raise LabelError(
                "the data have a class that is not known",
                got=f"{strange[0]} in {self.name}",
                expected=f"classes among {', '.join(list(classes)[:10])}{'…' * (len(classes) > 10)}",
            )
        if mask:
            labels = torch.zeros(len(self), len(classes), dtype=torch.bool)
            labels[:, [place[name] for name in present]] = self.labels[:, codes]
        else:
            order = torch.tensor([place.get(name, -1) for name in self.classes] or [-1])
            labels = torch.where(self.labels >= 0, order[self.labels], -1)
        return replace(self, labels=labels, classes=tuple(classes))


def load_source(
    source: Any,
    split: str = "train",
    *,
    labelled: bool = True,
    label: str | None = None,
    text: str | None = None,
    columns: Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
    strict: bool = False,
    download: bool = False,
    progress: bool | None = None,
) -> Source:
    """Load data by name or path, or from a data set in Python.

    A name of `randomset.data.catalogue` is looked for in the folder that RANDOMSET_DATA names; `split` is
    "train" or "test". `digits` are the 1,797 handwritten digits that ship with scikit-learn. An `.npz` file
    holds `images` (n × H × W, n × H × W × C or n × C × H × W) or `features` (n × F), `labels` (n), and
    optionally `classes`, the names in label order. Labels of shape (n × N) are set-valued: true where a
    class is possible. A folder holds images in folders named by their class, or images alone. A `.csv` or
    `.parquet` file has a column of texts or columns of numbers, and one of labels.

    Args:
        source: a name, a path, a torch data set, or one of Hugging Face's.
        split: which part of a data set that has several.
        labelled: whether labels are needed; without, they are -1.
        label: the column of labels in a table.
        text: the column of texts in a table.
        columns: the columns of numbers to use, in this order.
        size: (height, width) that images of a folder are brought to.
        strict: whether an image that cannot be read is an error.
        download: whether to fetch a named data set that is not here.
        progress: whether to show a bar; None shows it on a terminal.

    >>> digits = load_source("digits")
    >>> digits.kind, tuple(digits.inputs.shape), digits.classes[:3]
    ('images', (1797, 1, 8, 8), ('0', '1', '2'))
    """
    if isinstance(source, Source):
        return source
    if is_hub(source) or isinstance(source, Dataset):
        found = _from_python(source, split, labelled, label, text, progress)
    elif not isinstance(source, (str, Path)):
        raise RandomSetError(
            "the data are of no known kind",
            got=type(source).__name__,
            expected="a name, a path, a torch data set, or one of Hugging Face's",
        )
    elif str(source) == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.from_numpy(digits.images[:, None]).float() / 16
        names = tuple(map(str, range(10)))
        return Source("digits", "images", images, torch.from_numpy(digits.target).long(), names)
    elif str(source) in KNOWN:
        if download:
            fetch(str(source), progress=progress)
        found = _known(str(source), split, labelled, size, strict, progress)
    else:
        path = _existing(source)
        found = _from_path(path, split, labelled, label, text, size, strict, progress, columns)
    if labelled and not found.labelled:
        raise LabelError(
            "the data have no labels",
            got=found.name,
            expected="labels beside the inputs",
            remedy="Images need a folder for each class, tables a column of labels",
        )
    return found


def load_inputs(source: Any, split: str = "test", **options: Any) -> Any:
    """Load inputs alone, for prediction; labels are not looked at."""
    return load_source(source, split, labelled=False, **options).inputs


def _known(
    name: str, split: str, labelled: bool, size: tuple[int, int] | None, strict: bool, progress: bool | None
) -> Source:
    known, files = KNOWN[name], files_of(name, split)
    if len(files) == 2:
        pixels, marks = (read_idx(path) for path in files)
        tensor = images_from_array(pixels)
        codes, names = _labels(marks.astype(np.int64), len(tensor), np.array(known.classes))
        return Source(name, "images", tensor, codes, names)
    label, text = (known.label, known.text) if known.file else (None, None)
    found = replace(_from_path(files[0], split, labelled, label, text, size, strict, progress), name=name)
    if not known.file:
        return found
    first = {one: place for place, one in reversed(list(enumerate(found.inputs)))}
    if len(first) == len(found):
        return found
    remarks = (*found.remarks, f"{len(found) - len(first)} texts that occur twice are left out")
    return replace(found.part(torch.tensor(sorted(first.values()))), remarks=remarks)


def _from_path(
    path: Path,
    split: str,
    labelled: bool,
    label: str | None,
    text: str | None,
    size: tuple[int, int] | None,
    strict: bool,
    progress: bool | None,
    columns: Sequence[str] | None = None,
) -> Source:
    if path.is_dir() or is_picture(path):
        options: dict[str, Any] = {"size": size, "strict": strict, "progress": progress}
        seen = read_folder(path, split, labelled=labelled, **options)
        if seen.labels is None or not labelled:
            return _unlabelled(path.name, "images", seen.images, seen.remarks, seen.files)
        if len(seen.classes) == 1:
            raise LabelError(
                "the folder holds one class only",
                got=f"{seen.classes[0]} in {path}",
                expected="a folder for each of two or more classes",
            )
        labels, classes = _labels(seen.labels, len(seen.images), np.array(seen.classes))
        return Source(path.name, "images", seen.images, labels, classes, seen.remarks, seen.files)
    if path.suffix.lower() in (".csv", ".parquet"):
        table = read_table(path, label, text, columns, labelled)
        if table.labels is None or not labelled:
            found = _unlabelled(path.stem, table.kind, table.inputs, table.remarks)
        else:
            labels, classes = _labels(table.labels, len(table.inputs), None)
            found = Source(path.stem, table.kind, table.inputs, labels, classes, table.remarks)
        return replace(found, columns=table.columns, rows=table.rows)
    needed = ("labels",) if labelled else ()
    wanted = ("images", "features", "labels", "classes") if labelled else ("images", "features")
    arrays = read_arrays(path, wanted, needed)
    kind, inputs = inputs_from_arrays(arrays, path)
    if not labelled:
        return _unlabelled(path.stem, kind, inputs)
    labels, classes = _labels(arrays["labels"], len(inputs), arrays.get("classes"))
    return Source(path.stem, kind, inputs, labels, classes)


def _from_python(
    data: Any, split: str, labelled: bool, label: str | None, text: str | None, progress: bool | None
) -> Source:
    names: tuple[str, ...] = tuple(getattr(data, "classes", None) or ())
    if is_hub(data):
        if hasattr(data, "keys"):
            if split not in data:
                raise RandomSetError("the data set has no such split", got=split, expected=", ".join(data))
            data = data[split]
        data = HubRows(data, label, text)
        names = data.classes
    title = type(data).__name__
    inputs, marks = gathered(data, title, progress=progress)
    kind: Kind = "text" if isinstance(inputs, list) else "images" if inputs.dim() == 4 else "features"
    if marks is None or not labelled:
        return _unlabelled(title, kind, inputs)
    given = all(isinstance(name, str) for name in names) and names
    labels, classes = _labels(np.asarray(marks), len(inputs), np.array(names) if given else None)
    return Source(title, kind, inputs, labels, classes)


def _unlabelled(
    name: str, kind: Kind, inputs: Any, remarks: tuple[str, ...] = (), files: tuple[str, ...] | None = None
) -> Source:
    return Source(name, kind, inputs, torch.full((len(inputs),), -1), (), remarks, files)


def _existing(source: str | Path) -> Path:
    path = Path(source).expanduser()
    try:
        if path.exists():
            return path
    except OSError as error:  # a name too long to be one
        raise FileFormatError("this is no path", got=f"{str(source)[:60]}…: {error.strerror}") from None
    known = f"a name (digits, {', '.join(KNOWN)}) or the path of an .npz, .csv or .parquet file or a folder"
    raise FileFormatError("there is no such data", got=str(source), expected=known)


def _labels(labels: NDArray[Any], count: int, classes: Any) -> tuple[Tensor, tuple[str, ...]]:
    if labels.ndim != 2:
        codes, names = encoded_labels(labels, count, classes)
        return torch.from_numpy(codes), names
    if len(labels) != count or labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
        raise LabelError(
            "the set-valued labels do not fit",
            got=f"{labels.dtype} of shape {labels.shape} for {count} samples",
            expected="a row of 0 and 1 for each sample",
        )
    mask = torch.from_numpy(labels.astype(bool))
    if not mask.any(1).all():
        row = int((~mask.any(1)).nonzero()[0])
        raise LabelError("a set-valued label names no class", got=f"an empty set in row {row}")
    names = tuple(map(str, range(mask.shape[1]) if classes is None else np.asarray(classes).tolist()))
    if len(names) != mask.shape[1]:
        raise RandomSetError(
            "the names do not fit the labels", got=f"{len(names)} names for {mask.shape[1]} columns"
        )
    return mask, names
