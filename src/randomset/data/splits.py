"""What of a data set is for learning, validation, calibration and testing: the same on every machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from randomset._core.checks import is_whole
from randomset._core.files import read_document, write_document
from randomset.data.catalogue import KNOWN, files_of
from randomset.data.folders import has_split
from randomset.data.sources import Source, load_source
from randomset.errors import FileFormatError

__all__ = ["Parts", "fingerprint", "usual_shares"]

_FORMAT, _VERSION = "randomset.split", 1


def usual_shares(source: str) -> dict[str, float]:
    """Say what is held back of a source, as shares or numbers of samples, unless a user says otherwise.

    Of the paper's data sets, as many samples as there; a test share of 0 means the test data that are
    published with a set, where they are here, or the folder `test` beside `train`. Of anything else a tenth,
    a twentieth and a fifth.

    >>> usual_shares("digits")
    {'validation': 0.1, 'calibration': 0.05, 'test': 0.2}
    """
    shares: dict[str, float] = {"validation": 0.1, "calibration": 0.05, "test": 0.2}
    held, calibrating = KNOWN[source].held if source in KNOWN else (0, 0)
    if held:
        shares |= {"validation": held - calibrating, "calibration": calibrating}
    if _has_test(source):
        shares["test"] = 0
    return shares


def _has_test(source: str) -> bool:
    if source not in KNOWN:
        folder = Path(source)
        return bool(source) and has_split(folder, "train") and has_split(folder, "test")
    if len(KNOWN[source].splits) < 2:
        return False
    try:
        files_of(source, "test")
    except FileFormatError:
        return False
    return True


@dataclass(frozen=True)
class Parts:
    """The rows of a source for each purpose; `test` is None where test data are published apart."""

    source: str
    train: Tensor
    validation: Tensor
    calibration: Tensor
    test: Tensor | None

    @classmethod
    def of(
        cls, data: Source, name: str, validation: float, calibration: float, test: float, seed: int
    ) -> Parts:
        """Cut a source class by class."""
        if test == 0 and _has_test(name):
            rest, held, kept = data.split(validation, calibration, seed=seed)
            return cls(name, rest, held, kept, None)
        return cls(name, *data.split(validation, calibration, test, seed=seed))

    def test_data(self, data: Source, **options: Any) -> Source:
        """Return the test data: rows of the source, or those that are published apart."""
        return load_source(self.source, "test", **options) if self.test is None else data.part(self.test)

    def save(self, path: Path, data: Source) -> None:
        """Write the rows as JSON, with a mark of the data that they are of."""
        rows = {
            name: None if (part := getattr(self, name)) is None else part.tolist()
            for name in ("validation", "calibration", "test")
        }
        mark = {"samples": len(data), "mark": _mark(data), "contents": fingerprint(data)}
        write_document({"source": self.source, **mark, **rows}, path, _FORMAT, _VERSION)

    @classmethod
    def load(cls, path: Path, data: Source) -> Parts:
        """Read what `save` wrote, for the same data as then."""
        content = read_document(path, _FORMAT, _VERSION, "the split")
        source, samples, mark = (content.get(name) for name in ("source", "samples", "mark"))
        contents = content.get("contents")
        rows = {name: content.get(name) for name in ("validation", "calibration", "test")}
        whole = isinstance(source, str) and all(map(_are_places, rows.values()))
        if not whole or None in (rows["validation"], rows["calibration"]):
            raise FileFormatError(
                "the split cannot be read",
                got=f"{path}, which lacks its source or some rows",
                expected="what randomset train wrote",
                remedy="Train the run anew in another folder",
            )
        if (samples, mark) != (len(data), _mark(data)) or contents not in (None, fingerprint(data)):
            raise FileFormatError(
                "the data are others than those of the training",
                got=f"{len(data)} samples of {data.name}",
                expected=f"the same {samples} samples, with their labels, as in {path}",
                remedy="Name data to test and validate on: --test SOURCE --validation SOURCE",
            )
        if any(place >= len(data) for places in rows.values() for place in places or ()):
            raise FileFormatError("the split names rows that do not exist", got=str(path))
        parts = {
            name: None if places is None else torch.tensor(places).long() for name, places in rows.items()
        }
        taken = torch.zeros(len(data), dtype=torch.bool)
        for part in parts.values():
            if part is not None:
                taken[part] = True
        return cls(source, (~taken).nonzero()[:, 0], **parts)  # type: ignore[arg-type]


def _are_places(places: Any) -> bool:
    """Whether these are the numbers of rows, or nothing."""
    return places is None or (isinstance(places, list) and all(is_whole(place, 0) for place in places))


def fingerprint(data: Source) -> str:
    """Return letters that change with the labels and the contents of a thousand inputs, spread over all."""
    mark = hashlib.blake2b(_mark(data).encode(), digest_size=8)
    step = max(len(data) // 1000, 1)
    for row in range(0, len(data), step):
        sample = data.inputs[row]
        mark.update(sample.encode() if isinstance(sample, str) else sample.contiguous().numpy().tobytes())
    return mark.hexdigest()


def _mark(data: Source) -> str:
    """Return a few letters that change with the labels and the names of the files."""
    mark = hashlib.blake2b(data.labels.numpy().tobytes(), digest_size=8)
    for file in data.files or ():
        mark.update(Path(file).name.encode())
    return mark.hexdigest()
