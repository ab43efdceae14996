"""Load data from names, files, folders and data set objects into one type, `Source`."""

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

from randomset._core.checks import encoded_labels, listed, stratified_parts
from randomset.data.arrays import Content, images_from_array, inputs_from_arrays, read_arrays, read_idx
from randomset.data.catalogue import KNOWN, files_of
from randomset.data.datasets import HuggingFaceDataset, class_names, is_huggingface, read_dataset
from randomset.data.downloads import download as fetch
from randomset.data.images import is_image_file, read_folder
from randomset.data.tables import read_table
from randomset.errors import FileFormatError, LabelError, RandomSetError

__all__ = [
    "Source",
    "load_inputs",
    "load_source",
    "mask_from_rows",
]

Kind = Literal["images", "features", "text", "tokens"]


@dataclass(frozen=True)
class Source:
    """Inputs, labels and class names.

    Images are (n × C × H × W), uint8 or float; features are (n × F); texts are a list, or token indices
    (n × T) padded with −1. Labels are class indices (n), −1 if missing, or a mask of set-valued labels
    (n × N). `remarks` describe changes made to the data, `files` holds the path of each input that has its
    own file, `columns` the names of a table's features, and `rows` the row of each input in a table with
    skipped rows.
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
        inputs = "texts" if self.kind == "text" else f"{self.kind} of shape {tuple(self.inputs.shape[1:])}"
        return f"Source({self.name}: {len(self)} {inputs}, {len(self.classes)} classes)"

    @property
    def labelled(self) -> bool:
        """Whether every input has a label."""
        return self.labels.dim() == 2 or bool((self.labels >= 0).all())

    def split(self, *shares: float, seed: int = 0) -> list[Tensor]:
        """Return the indices of the remainder and of one part per share, stratified by class.

        The result depends only on the seed and the labels, on every machine.
        """
        strata = self.labels
        if strata.dim() == 2:
            strata = torch.unique(strata, dim=0, return_inverse=True)[1]
        return [torch.from_numpy(part) for part in stratified_parts(strata.numpy(), shares, seed)]

    def part(self, indices: Tensor) -> Source:
        """Return the samples at the given indices."""
        positions = indices.tolist()
        inputs = [self.inputs[i] for i in positions] if self.kind == "text" else self.inputs[indices]
        files = None if self.files is None else tuple(self.files[i] for i in positions)
        rows = None if self.rows is None else tuple(self.rows[i] for i in positions)
        return replace(self, inputs=inputs, labels=self.labels[indices], files=files, rows=rows)

    def aligned(self, classes: Sequence[str]) -> Source:
        """Renumber the labels to match another list of class names, such as that of a network."""
        if tuple(classes) == self.classes:
            return self
        index = {name: number for number, name in enumerate(classes)}
        mask = self.labels.dim() == 2
        codes = self.labels.any(0).nonzero()[:, 0] if mask else self.labels[self.labels >= 0].unique()
        present = [self.classes[code] for code in codes.tolist()]
        if unknown := [name for name in present if name not in index]:
            raise LabelError(
                "the data contain an unknown class",
                got=f"{unknown[0]} in {self.name}",
                expected=f"one of {listed(classes)}",
            )
        if mask:
            labels = torch.zeros(len(self), len(classes), dtype=torch.bool)
            labels[:, [index[name] for name in present]] = self.labels[:, codes]
        else:
            order = torch.tensor([index.get(name, -1) for name in self.classes] or [-1])
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
    """Load data by name, from a path, or from a data set object.

    Named data sets (`randomset.data.catalogue`) are read from the folder in RANDOMSET_DATA; "digits", the
    1,797 handwritten digits of scikit-learn, is built in. An `.npz` file holds `images` (n × H × W,
    n × H × W × C or n × C × H × W) or `features` (n × F), `labels` (n), and optionally `classes`, the class
    names in label order. Labels of shape (n × N) are set-valued: true for each possible class. An image
    folder has one subfolder per class, or images only. A `.csv` or `.parquet` file has a text column or
    numeric columns, and a label column.

    Args:
        source: a name, a path, a torch data set, or a Hugging Face data set.
        split: which split to load, such as "train" or "test".
        labelled: whether labels are required; if False, labels are -1.
        label: name of the label column in a table.
        text: name of the text column in a table.
        columns: names of the numeric columns to use, in this order.
        size: (height, width) to which the images of a folder are resized.
        strict: whether an unreadable image is an error.
        download: whether to download a named data set that is missing.
        progress: whether to show a progress bar; None shows it on a terminal.

    >>> digits = load_source("digits")
    >>> digits.kind, tuple(digits.inputs.shape), digits.classes[:3]
    ('images', (1797, 1, 8, 8), ('0', '1', '2'))
    """
    if isinstance(source, Source):
        return source
    table = {"label": label, "text": text, "columns": columns}
    images = {"size": size, "strict": strict, "progress": progress}
    if not isinstance(source, (str, Path)):
        if not (isinstance(source, Dataset) or is_huggingface(source)):
            raise RandomSetError(
                "unsupported data source",
                got=type(source).__name__,
                expected="a name, a path, a torch data set, or a Hugging Face data set",
            )
        loaded = _from_dataset(source, split, labelled, table, progress)
    elif str(source) == "digits":
        loaded = _digits()
    elif str(source) in KNOWN:
        if download:
            fetch(str(source), progress=progress)
        loaded = _from_name(str(source), split, labelled, images)
    else:
        loaded = _from_path(_existing(source), split, labelled, table, images)
    if labelled and not loaded.labelled:
        raise LabelError(
            "the data have no labels",
            got=loaded.name,
            remedy="Put images into one folder per class, or add a label column to a table",
        )
    return loaded


def load_inputs(source: Any, split: str = "test", **options: Any) -> Any:
    """Load inputs only, for prediction; labels are ignored."""
    return load_source(source, split, labelled=False, **options).inputs


def _digits() -> Source:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images[:, None]).float() / 16
    names = tuple(map(str, range(10)))
    return Source("digits", "images", images, torch.from_numpy(digits.target).long(), names)


def _from_name(name: str, split: str, labelled: bool, images: dict[str, Any]) -> Source:
    known, files = KNOWN[name], files_of(name, split)
    if len(files) == 2:
        pixels, labels = (read_idx(path) for path in files)
        content = Content("images", images_from_array(pixels), labels.astype(np.int64), known.classes)
        return _source(name, content)
    table = {"label": known.label, "text": known.text} if known.file else {}
    loaded = replace(_from_path(files[0], split, labelled, table, images), name=name)
    if not known.file:
        return loaded
    first = {value: row for row, value in reversed(list(enumerate(loaded.inputs)))}
    if len(first) == len(loaded):
        return loaded
    remarks = (*loaded.remarks, f"{len(loaded) - len(first)} duplicate texts are left out")
    return replace(loaded.part(torch.tensor(sorted(first.values()))), remarks=remarks)


def _from_path(
    path: Path, split: str, labelled: bool, table: dict[str, Any], images: dict[str, Any]
) -> Source:
    if path.is_dir() or is_image_file(path):
        folder = read_folder(path, split, labelled=labelled, **images)
        if len(folder.classes) == 1:
            raise LabelError(
                "the folder contains only one class",
                got=f"{folder.classes[0]} in {path}",
                expected="one folder for each of two or more classes",
            )
        return _source(path.name, folder)
    if path.suffix.lower() in (".csv", ".parquet"):
        return _source(path.stem, read_table(path, labelled=labelled, **table))
    wanted = ("images", "features", "labels", "classes") if labelled else ("images", "features")
    arrays = read_arrays(path, wanted, ("labels",) if labelled else ())
    kind, inputs = inputs_from_arrays(arrays, path)
    return _source(path.stem, Content(kind, inputs, arrays.get("labels"), arrays.get("classes")))


def _from_dataset(data: Any, split: str, labelled: bool, table: Any, progress: bool | None) -> Source:
    if is_huggingface(data):
        if hasattr(data, "keys"):
            if split not in data:
                raise RandomSetError("unknown split", got=split, expected=", ".join(data))
            data = data[split]
        data = HuggingFaceDataset(data, table["label"], table["text"])
    title = type(data).__name__
    inputs, labels = read_dataset(data, title, progress)
    kind: Any = "text" if isinstance(inputs, list) else "images" if inputs.dim() == 4 else "features"
    given = np.asarray(labels) if labelled and labels is not None else None
    return _source(title, Content(kind, inputs, given, class_names(data) or None))


def _source(name: str, content: Content) -> Source:
    """Build a source with encoded labels, or with -1 where there are none."""
    count = len(content.inputs)
    labels, classes = torch.full((count,), -1), tuple[str, ...]()
    names = None if content.classes is None else np.array(content.classes)
    if content.labels is not None and content.labels.ndim == 2:
        labels, classes = mask_from_rows(content.labels, count, names)
    elif content.labels is not None:
        codes, classes = encoded_labels(content.labels, count, names)
        labels = torch.from_numpy(codes)
    extra = (content.remarks, content.files, content.columns, content.rows)
    return Source(name, content.kind, content.inputs, labels, classes, *extra)


def _existing(source: str | Path) -> Path:
    path = Path(source).expanduser()
    try:
        if path.exists():
            return path
    except OSError as error:  # the name is too long for a path
        raise FileFormatError("invalid path", got=f"{str(source)[:60]}…: {error.strerror}") from None
    names = f"digits, {', '.join(KNOWN)}"
    expected = f"a name ({names}) or the path of an .npz, .csv or .parquet file or a folder"
    remedy = ""
    if str(source).lower() in ("noise", "random"):
        remedy = 'Save random inputs as a file, such as numpy.savez("noise.npz", images=…)'
    raise FileFormatError("no such data", got=str(source), expected=expected, remedy=remedy)


def mask_from_rows(labels: NDArray[Any], count: int, classes: Any = None) -> tuple[Tensor, tuple[str, ...]]:
    """Return set-valued labels, a row of 0 and 1 for each sample, as a mask (n × N), and the class names."""
    if len(labels) != count or labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
        raise LabelError(
            "invalid set-valued labels",
            got=f"{labels.dtype} of shape {labels.shape} for {count} samples",
            expected="a row of 0 and 1 for each sample",
        )
    mask = torch.from_numpy(labels.astype(bool))
    if not mask.any(1).all():
        row = int((~mask.any(1)).nonzero()[0])
        raise LabelError("a set-valued label is empty", got=f"an empty set in row {row}")
    names = tuple(map(str, range(mask.shape[1]) if classes is None else np.asarray(classes).tolist()))
    if len(names) != mask.shape[1]:
        got = f"{len(names)} names for {mask.shape[1]} columns"
        raise RandomSetError("class names do not match the labels", got=got)
    return mask, names
