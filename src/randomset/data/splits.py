"""Splits of a source into training, validation, calibration and test samples, identified by digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from randomset._core.checks import enough, is_whole
from randomset._core.files import read_document, write_document
from randomset.data.catalogue import KNOWN, is_present
from randomset.data.images import has_split
from randomset.data.sources import Source, load_source
from randomset.errors import FileFormatError

__all__ = ["Parts", "fingerprint", "label_digest", "resolved", "sample_digests", "unseen", "usual_shares"]

_FORMAT, _VERSION = "randomset.split", 2  # version 1 had no digests
_HELD_OUT = ("validation", "calibration", "test")
_TRAIN, _TEST, _NEW, _COPY = 0, 3, -1, -2
"""The parts are 0 to 3. A copy equals a sample used in training, but was not there at the time."""


def resolved(source: str) -> str:
    """Return the absolute path of a file or folder; names of data sets are returned unchanged."""
    named = source in ("", "digits", *KNOWN)
    return source if named or not Path(source).exists() else str(Path(source).resolve())


def usual_shares(source: str) -> dict[str, float]:
    """Return the default shares, or numbers of samples, to hold out.

    For the paper's data sets, these are the paper's numbers. A test share of 0 stands for the published test
    data, if present, or for a folder `test` beside `train`. Other sources have the shares below.

    >>> usual_shares("digits")
    {'validation': 0.1, 'calibration': 0.05, 'test': 0.2}
    """
    shares: dict[str, float] = {"validation": 0.1, "calibration": 0.05, "test": 0.2}
    held, calibration = KNOWN[source].held if source in KNOWN else (0, 0)
    if held:
        shares |= {"validation": held - calibration, "calibration": calibration}
    if _has_test(source):
        shares["test"] = 0
    return shares


def _has_test(source: str) -> bool:
    if source not in KNOWN:
        folder = Path(source)
        return bool(source) and has_split(folder, "train") and has_split(folder, "test")
    return len(KNOWN[source].splits) > 1 and is_present(source, "test")


@dataclass(frozen=True)
class Parts:
    """The rows of a source for each purpose; `test` is None if the test data are a separate source."""

    source: str
    train: Tensor
    validation: Tensor
    calibration: Tensor
    test: Tensor | None

    @classmethod
    def of(
        cls, data: Source, name: str, validation: float, calibration: float, test: float, seed: int
    ) -> Parts:
        """Split a source, with each class in the same proportions.

        The validation share is raised to what a reliability needs, if that is at most a quarter of the data.
        """
        validation = enough(validation, len(data))
        if test == 0 and _has_test(name):
            train, held, calibrating = data.split(validation, calibration, seed=seed)
            return cls(name, train, held, calibrating, None)
        return cls(name, *data.split(validation, calibration, test, seed=seed))

    def test_data(self, data: Source, **options: Any) -> Source:
        """Return the test data: rows of the source, or those published separately."""
        return load_source(self.source, "test", **options) if self.test is None else data.part(self.test)

    def save(self, path: Path, data: Source) -> None:
        """Write the rows as JSON, with a digest of each sample and fingerprints of the whole source."""
        rows = {name: None if (part := getattr(self, name)) is None else part.tolist() for name in _HELD_OUT}
        marks = {"samples": len(data), "mark": label_digest(data), "contents": fingerprint(data)}
        content = {"source": self.source, **marks, **rows, "digests": sample_digests(data.inputs)}
        write_document(content, path, _FORMAT, _VERSION)

    @classmethod
    def load(cls, path: Path, data: Source) -> Parts:
        """Read a file written by `save`, for unchanged data: to resume training."""
        return _Stored.read(path).rows_of(data)

    @classmethod
    def match(cls, path: Path, data: Source) -> tuple[Parts, tuple[str, ...]]:
        """Read a file written by `save`, for data that may have changed; also return remarks on the changes.

        Samples are recognised by content, whatever their order, names or labels. New samples are for testing,
        or left out if the test data are a separate source. Additional copies of samples that were used in
        training are always left out.

        A file of version 1 has no digests: the data must be unchanged.
        """
        stored = _Stored.read(path)
        if stored.digests is None or stored.describes(data):
            return stored.rows_of(data), ()
        return stored.match(data)


def unseen(path: Path, data: Source) -> Source:
    """Leave out the samples that a run used in training, validation or calibration, according to its split.

    Images and texts are excluded if an equal one was used. So are the rows of a table, unless more than 1 %
    of the rows in the run's data repeat others: in a table of a few integers, equal rows need not be the same
    sample. They are then excluded only if all rows used in training are present, as in a copy of the table.
    Constant images, such as blank ones, never count as equal.

    Without a split, all samples are kept. One of version 1 recognises only the whole data, unchanged; a
    remark says if it does not.
    """
    stored = _Stored.read(path) if path.exists() else None
    if stored is None:
        return data
    if stored.digests is None:
        if not stored.describes(data):
            remark = "samples used in training are not recognised: the split is that of an earlier version"
            return replace(data, remarks=(*data.remarks, remark))
        seen, keep_all = stored.codes != _TEST, False
    else:
        digests = sample_digests(data.inputs)
        codes = stored.codes_of(digests)
        matched = (codes >= _TRAIN) & (codes != _TEST)
        seen = (matched | (codes == _COPY)) & torch.tensor([bool(digest) for digest in digests])
        repeated = not stored.identifies(data)
        keep_all = repeated and int(matched.sum()) < int((stored.codes != _TEST).sum())
        if repeated and not keep_all:
            seen &= matched
    if not seen.any():
        return data
    remark = f"{int(seen.sum()):,} of {len(data):,} inputs "
    if keep_all:
        remark += "equal rows used in training and are kept: the rows of this table repeat each other"
        return replace(data, remarks=(*data.remarks, remark))
    if seen.all():
        raise FileFormatError(
            "no inputs are left to test on",
            got=f"{data.name}: all {len(data):,} inputs were used in training",
            remedy="Name labelled data that the run was not trained on: --test SOURCE",
        )
    remark += "were used in training and are excluded"
    return replace(data.part((~seen).nonzero()[:, 0]), remarks=(*data.remarks, remark))


@dataclass(frozen=True)
class _Stored:
    """The contents of split.json."""

    path: Path
    source: str
    rows: dict[str, list[int] | None]
    samples: int
    mark: Any
    contents: Any
    digests: list[str] | None

    @classmethod
    def read(cls, path: Path) -> _Stored:
        content = read_document(path, _FORMAT, _version_of(path), "the split")
        source, samples, mark = (content.get(name) for name in ("source", "samples", "mark"))
        rows, digests = {name: content.get(name) for name in _HELD_OUT}, content.get("digests")
        valid = isinstance(source, str) and is_whole(samples, 0) and all(map(_are_rows, rows.values()))
        if content["version"] > 1:
            valid = valid and _are_digests(digests, samples)
        if not valid or None in (rows["validation"], rows["calibration"]):
            raise FileFormatError(
                "the split cannot be read",
                got=f"{path}, which lacks its source, some rows or digests",
                expected="a file written by randomset train",
                remedy="Train the run again in another folder",
            )
        return cls(path, source, rows, samples, mark, content.get("contents"), digests)  # type: ignore[arg-type]

    def describes(self, data: Source) -> bool:
        """Return whether the data are the same, row by row."""
        same = (self.samples, self.mark) == (len(data), label_digest(data))
        return same and self.contents in (None, fingerprint(data))

    def rows_of(self, data: Source) -> Parts:
        """Return the stored rows, for unchanged data."""
        if not self.describes(data):
            raise FileFormatError(
                "the data have changed since training",
                got=f"{len(data)} samples of {data.name}",
                expected=f"the same {self.samples} samples, with their labels, as in {self.path}",
                remedy="Name data to test and validate on: --test SOURCE --validation SOURCE",
            )
        return self._parts(self.codes)

    @property
    def codes(self) -> Tensor:
        """The part that each sample belongs to."""
        codes = torch.full((self.samples,), _TRAIN)
        for code, name in enumerate(_HELD_OUT, 1):
            rows = self.rows[name] or []
            if max(rows, default=-1) >= self.samples:
                raise FileFormatError("the split names rows that do not exist", got=str(self.path))
            codes[rows] = code
        return codes

    def identifies(self, data: Source) -> bool:
        """Return whether equal samples are the same sample: always, except in tables with repeated rows."""
        assert self.digests is not None
        return data.kind != "features" or len(set(self.digests)) >= 0.99 * len(self.digests)

    def codes_of(self, digests: Sequence[str]) -> Tensor:
        """Return the part of each sample; equal samples are assigned in row order."""
        assert self.digests is not None
        codes = self.codes.tolist()
        waiting: dict[str, list[int]] = {}
        for digest, code in zip(reversed(self.digests), reversed(codes), strict=True):
            waiting.setdefault(digest, []).append(code)
        used = {digest for digest, code in zip(self.digests, codes, strict=True) if code != _TEST}
        return torch.tensor(
            [
                left.pop() if (left := waiting.get(digest)) else _COPY if digest in used else _NEW
                for digest in digests
            ]
        )

    def match(self, data: Source) -> tuple[Parts, tuple[str, ...]]:
        """Return the rows of samples that may have changed, and remarks on the changes."""
        digests = sample_digests(data.inputs)
        codes = self.codes_of(digests)
        missing = self.samples - int((codes >= _TRAIN).sum())
        if not self.identifies(data):
            codes[codes == _COPY] = _NEW
        codes[(codes == _COPY) & torch.tensor([not digest for digest in digests])] = _NEW
        new, copies = int((codes == _NEW).sum()), int((codes == _COPY).sum())
        if self.rows["test"] is not None:
            codes[codes == _NEW] = _TEST
        changes = {
            "new since training": new,
            "additional copies of samples used in training and are excluded": copies,
        }
        remarks = [f"{count:,} of {len(data):,} samples are {how}" for how, count in changes.items() if count]
        if missing:
            remarks.append(f"{missing:,} of the {self.samples:,} samples at training time are missing")
        return self._parts(codes), tuple(remarks)

    def _parts(self, codes: Tensor) -> Parts:
        train, validation, calibration, test = ((codes == code).nonzero()[:, 0] for code in range(4))
        return Parts(self.source, train, validation, calibration, None if self.rows["test"] is None else test)


def _version_of(path: Path) -> int:
    """Return the version to read a file as; errors in it are reported later."""
    try:
        version = json.loads(path.read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return _VERSION
    return 1 if is_whole(version, 1) and version == 1 else _VERSION


def _are_rows(rows: Any) -> bool:
    return rows is None or (isinstance(rows, list) and all(is_whole(row, 0) for row in rows))


def _are_digests(digests: Any, count: Any) -> bool:
    texts = isinstance(digests, list) and all(isinstance(digest, str) for digest in digests)
    return texts and len(digests) == count


def sample_digests(inputs: Any) -> list[str]:
    """Return 16 hexadecimal digits for each sample, equal for equal samples; "" for constant samples.

    Images may be bytes or the same pixels in [0, 1].

    >>> pixels = torch.tensor([[0, 255], [7, 7]], dtype=torch.uint8)
    >>> sample_digests(pixels) == sample_digests(pixels / 255)
    True
    """
    return [hashlib.blake2b(row, digest_size=8).hexdigest() if row else "" for row in _contents(inputs)]


def _contents(inputs: Any) -> Iterator[bytes]:
    """Yield each sample as bytes; b"" if it is constant."""
    if not isinstance(inputs, Tensor):
        yield from (text.encode() for text in inputs)
        return
    for chunk in inputs.detach().cpu().flatten(1).split(512) if len(inputs) else ():
        rows = chunk.float() + 0.0 if chunk.is_floating_point() else chunk  # −0 equals 0
        constant = (rows == rows[:, :1]).all(1) & (rows.shape[1] > 1)
        pixels, are_pixels = rows, torch.ones(len(rows), dtype=torch.bool)
        if rows.is_floating_point():
            scaled = 255 * rows
            pixels = scaled.round()
            are_pixels = (((scaled - pixels).abs() < 1e-3) & (pixels >= 0) & (pixels <= 255)).all(1)
            pixels = torch.where(are_pixels[:, None], pixels, 0).to(torch.uint8)
        flags = zip(constant.tolist(), are_pixels.tolist(), strict=True)
        for row, (blank, is_pixels) in enumerate(flags):
            yield b"" if blank else (pixels if is_pixels else rows)[row].numpy().tobytes()


def fingerprint(data: Source) -> str:
    """Return a digest of the labels and of a thousand samples, evenly spaced."""
    digest = hashlib.blake2b(label_digest(data).encode(), digest_size=8)
    step = max(len(data) // 1000, 1)
    for row in range(0, len(data), step):
        sample = data.inputs[row]
        digest.update(sample.encode() if isinstance(sample, str) else sample.contiguous().numpy().tobytes())
    return digest.hexdigest()


def label_digest(data: Source) -> str:
    """Return a digest of the labels and the names of the files."""
    digest = hashlib.blake2b(data.labels.numpy().tobytes(), digest_size=8)
    for file in data.files or ():
        digest.update(Path(file).name.encode())
    return digest.hexdigest()
