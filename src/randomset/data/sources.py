"""Sources of labelled data: `digits`, and `.npz` files with images or features."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset.budgeting.inputs import encoded_labels, stratified_parts
from randomset.data.catalogue import KNOWN, files_of
from randomset.data.idx import read_idx
from randomset.errors import FileFormatError, LabelError, RandomSetError, ShapeError

__all__ = ["Source", "images_from_array", "load_inputs", "load_source", "read_arrays"]


@dataclass(frozen=True)
class Source:
    """Inputs, labels and the names of the classes.

    Images are (n × C × H × W), bytes or floats; features are (n × F). Labels are class indices (n) or a mask
    of set-valued labels (n × N).
    """

    name: str
    kind: Literal["images", "features"]
    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.inputs)

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


def load_source(source: str | Path, split: str = "train") -> Source:
    """Load labelled data by name or path.

    A name of `randomset.data.catalogue` is looked for in the folder that RANDOMSET_DATA names; `split` is
    "train" or "test". `digits` are the 1,797 handwritten digits that ship with scikit-learn. An `.npz` file
    holds `images` (n × H × W, n × H × W × C or n × C × H × W) or `features` (n × F), `labels` (n), and
    optionally `classes`, the names in label order. Labels of shape (n × N) are set-valued: true where a
    class is possible.

    >>> digits = load_source("digits")
    >>> digits.kind, tuple(digits.inputs.shape), digits.classes[:3]
    ('images', (1797, 1, 8, 8), ('0', '1', '2'))
    """
    if str(source) == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.from_numpy(digits.images[:, None]).float() / 16
        names = tuple(map(str, range(10)))
        return Source("digits", "images", images, torch.from_numpy(digits.target).long(), names)
    if str(source) in KNOWN and KNOWN[str(source)].folder:
        known = KNOWN[str(source)]
        pixels, marks = (read_idx(path) for path in files_of(str(source), split))
        tensor = images_from_array(pixels)
        codes, names = _labels(marks.astype(np.int64), len(tensor), np.array(known.classes))
        return Source(str(source), "images", tensor, codes, names)
    path = files_of(str(source), split)[0] if str(source) in KNOWN else _existing(source)
    arrays = read_arrays(path, ("images", "features", "labels", "classes"), needed=("labels",))
    kind, inputs = _inputs(arrays, path)
    labels, classes = _labels(arrays["labels"], len(inputs), arrays.get("classes"))
    return Source(path.stem, kind, inputs, labels, classes)


def load_inputs(source: str | Path, split: str = "test") -> Tensor:
    """Load inputs alone, for prediction; labels in the file are not looked at."""
    if str(source) == "digits" or str(source) in KNOWN:
        return load_source(source, split).inputs
    path = _existing(source)
    return _inputs(read_arrays(path, ("images", "features")), path)[1]


def read_arrays(path: Path, wanted: tuple[str, ...], needed: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Read an .npz file, without ever running what is inside."""
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            names = archive.files
            arrays = {name: archive[name] for name in names if name in wanted}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(
            "the file cannot be read as .npz",
            got=f"{path}: {_why(path, error)}",
            expected="arrays of numbers or text, written by numpy.savez (text as dtype str, not object)",
        ) from None
    for name in needed:
        if name not in arrays:
            raise FileFormatError(
                f"the file has no array {name!r}",
                got=f"{path} with {', '.join(names) or 'nothing'}",
                remedy=f"Write it with numpy.savez(path, {wanted[0]}=…, labels=…)",
            )
    return arrays


def _why(path: Path, error: Exception) -> str:
    if "pickle" not in str(error):
        return str(error) or type(error).__name__
    whole = path.is_file() and zipfile.is_zipfile(path)
    return "it holds Python objects" if whole else "it is another kind of file"


def _existing(source: str | Path) -> Path:
    path = Path(source).expanduser()
    if path.is_file():
        return path
    known = f"a name (digits, {', '.join(KNOWN)}) or the path of an .npz file"
    raise FileFormatError("there is no such data", got=str(source), expected=known)


def _inputs(arrays: dict[str, NDArray[Any]], path: Path) -> tuple[Literal["images", "features"], Tensor]:
    if ("images" in arrays) == ("features" in arrays):
        raise FileFormatError(
            "the file needs either `images` or `features`",
            got=f"{path} with {'both' if 'images' in arrays else 'neither'}",
        )
    kind: Literal["images", "features"] = "images" if "images" in arrays else "features"
    array = arrays[kind]
    if array.dtype.kind not in "fiub" or array.ndim < 2 or not array.size:
        raise ShapeError(
            f"the {kind} are not arrays of numbers",
            got=f"{array.dtype} of shape {array.shape}",
            expected="(n, height, width), with channels or without" if kind == "images" else "(n, features)",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).reshape(len(array), -1).any(1).argmax())
        raise ShapeError(f"the {kind} are not all finite", got=f"NaN or infinity in sample {bad}")
    if kind == "features":
        return kind, torch.from_numpy(array.reshape(len(array), -1).astype(np.float32))
    return kind, images_from_array(array)


def images_from_array(array: NDArray[Any]) -> Tensor:
    """Bring images into the form (n × C × H × W), of bytes or of floats.

    Channels may come last if there are 1, 3 or 4 of them. Whole numbers from 0 to 255 are bytes.

    >>> images_from_array(np.zeros((5, 8, 8, 3))).shape
    torch.Size([5, 3, 8, 8])
    """
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[-1] in (1, 3, 4) and array.shape[1] not in (1, 3, 4):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] > 64:
        raise ShapeError(
            "these are no images", got=f"shape {array.shape}", expected="(n, height, width, channels)"
        )
    if array.dtype.kind in "iu" and array.min() >= 0 and array.max() <= 255:
        array = array.astype(np.uint8)
    elif array.dtype != np.uint8:
        array = array.astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(array))


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
