"""A run folder as a served model, which reads untrusted inputs within limits and predicts them."""

from __future__ import annotations

import asyncio
import io
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import randomset
from randomset._core.files import read_document
from randomset._core.packages import optional_package
from randomset._core.pixels import pixels_from_pil
from randomset.backbones.hugging_face import load_tokenizer, tokenize
from randomset.errors import FileFormatError, RandomSetError, ShapeError, first_line
from randomset.models import load as load_model
from randomset.models.prediction import Threshold
from randomset.models.reliability import Reliability
from randomset.runs.data import TOKENIZER
from randomset.serving.answers import Answers

__all__ = ["Answer", "Limits", "ServedModel", "TooLarge"]

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # other decoders of Pillow are less maintained
_TOTAL = 4  # total pixels of all images in a request, in units of the limit for one image
_NUMBER = 24  # bytes of a number in JSON, at most


@dataclass(frozen=True)
class Limits:
    """Limits on one request (bytes, pixels, batch, seconds) and on all (waiting, requests)."""

    bytes: int = 32 * 2**20
    pixels: int = 40_000_000
    batch: int = 256
    waiting: int = 2048
    requests: int = 64
    seconds: float = 30.0


class TooLarge(RandomSetError):
    """The request exceeds a limit."""


@dataclass(frozen=True)
class Answer:
    """One prediction of a batch; its details, long for many classes, are computed on request."""

    batch: Answers
    row: int
    line: dict[str, Any]

    def whole(self) -> dict[str, Any]:
        """Return the prediction with all probabilities, intervals and masses."""
        return {**self.line, **self.batch.details(self.row), "intervals": self.batch.intervals(self.row)}


class ServedModel:
    """A trained model with its threshold, which reads image files, numbers or texts as inputs.

    Args:
        run: the run folder.
        limits: the limits on requests.
    """

    def __init__(self, run: Path, limits: Limits | None = None) -> None:
        self.run, self.limits = run, limits or Limits()
        self.model, self.threshold = load_model(run), Threshold.load(run)
        self.classes, spec = list(self.model.classes), self.model.input_spec
        if spec is None:
            raise RandomSetError("the run does not record the shape of its inputs", got=str(run))
        self.spec, self.shape, self.kind, self.expected = spec, list(spec.shape), spec.kind, spec.expected
        self.largest = spec.largest or 1.0
        self.tokens = spec.shape[0] if spec.tokens else 0
        if spec.tokens:
            self.tokenizer = load_tokenizer(run / TOKENIZER)
        if self.kind == "images":
            _configure_pillow(self.limits.pixels)
        self.warm()

    @property
    def longest_json(self) -> int:
        """The longest body of JSON, in bytes: parsing it blocks the other threads."""
        numbers = _NUMBER * self.limits.batch * math.prod(self.shape)
        return self.limits.bytes if self.tokens else min(self.limits.bytes, max(4 * 2**20, numbers))

    def warm(self) -> None:
        """Predict once, so that the first request does not wait for torch's initialisation."""
        self.answers(torch.full((1, *self.shape), 1) if self.tokens else torch.zeros(1, *self.shape))

    # -- inputs ---------------------------------------------------------------------------------

    def from_files(self, files: list[bytes], until: float = math.inf) -> Tensor:
        """Decode and resize images; give up when `time.monotonic()` is past `until`."""
        self._check_kind("images", "image files")
        self._check_count(len(files))
        pixels = 0
        for number, content in enumerate(files):  # headers only: nothing is decoded yet
            with self._opened(number, content) as picture:
                pixels += picture.width * picture.height
                self._check_pixels(picture.width * picture.height)
        self._check_pixels(pixels, _TOTAL, "the images of the request are too large in total")
        images = []
        for number, content in enumerate(files):
            if time.monotonic() > until:
                raise asyncio.TimeoutError
            with self._opened(number, content) as picture:
                images.append(pixels_from_pil(picture, (self.shape[1], self.shape[2]), self.shape[0] == 1))
        return torch.stack(images)

    def from_numbers(self, numbers: Any, bytes: bool = False) -> Tensor:
        """Convert nested lists, one sample or a batch, to inputs; images of another size are resized."""
        if self.kind == "texts":
            raise ShapeError("the network expects texts", got="numbers", expected='{"texts": [...]}')
        if isinstance(numbers, list):
            self._check_count(len(numbers), of_numbers=True)
        try:
            array = np.asarray(numbers)
        except (TypeError, ValueError, OverflowError, RecursionError):
            array = np.array(None)
        if array.dtype.kind not in "iuf":
            raise ShapeError("inputs must be a regular array of numbers", got=type(numbers).__name__)
        with np.errstate(over="ignore"):  # too large becomes infinite, and is rejected
            inputs = torch.from_numpy(array.astype(np.float32))
        if not inputs.numel() or not inputs.isfinite().all():
            raise ShapeError("inputs must be finite numbers", got=f"an array of shape {array.shape}")
        inputs = self.spec.batched(inputs)
        if inputs.dim() != len(self.shape) + 1:
            raise ShapeError(
                "wrong input shape for the model", got=str(tuple(array.shape)), expected=self.expected
            )
        self._check_count(len(inputs))
        if self.kind == "images":
            self._check_pixels(inputs.shape[2] * inputs.shape[3])
            largest = 255.0 if bytes else max(self.largest, 1.0)
            if self.largest <= 1.5 and not (inputs.min() >= 0 and inputs.max() <= largest):
                raise ShapeError(
                    "pixels are out of range",
                    got=f"from {inputs.min():g} to {inputs.max():g}",
                    expected=f"numbers from 0 to {largest:g}",
                    remedy="" if bytes else 'For numbers up to 255, send "bytes": true',
                )
            if bytes and (inputs != inputs.round()).any():
                raise ShapeError(
                    "bytes must be whole numbers", got=f"fractions, up to {inputs.max():g}",
                    remedy='For numbers from 0 to 1, leave "bytes" out',
                )  # fmt: skip
            inputs = inputs / 255 if bytes else inputs
        return self.spec.fit(inputs)[0]

    def from_texts(self, texts: Any) -> Tensor:
        """Convert texts to tokens."""
        self._check_kind("texts", "texts")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise ShapeError("texts must be strings", got=type(texts).__name__, expected="a list of strings")
        self._check_count(len(texts))
        return tokenize(texts, self.tokenizer, self.tokens)

    @contextmanager
    def _opened(self, number: int, content: bytes) -> Iterator[Any]:
        """Open an image file; report errors, also those while it is decoded, as errors of the request."""
        with optional_package("pillow", "serve"):
            from PIL import Image
        name = f"file {number + 1}"
        try:
            with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
                yield picture
        except (TooLarge, asyncio.TimeoutError):
            raise
        except (MemoryError, Image.DecompressionBombError):
            raise TooLarge("an image is too large", got=name) from None
        except Exception as error:  # Pillow's decoders raise many kinds on broken files
            cause = first_line(error)[:120]
            cause = "not an image" if "cannot identify" in cause else cause
            expected = ", ".join(_FORMATS)
            raise ShapeError("cannot read an image", got=f"{name}: {cause}", expected=expected) from None

    def _check_kind(self, kind: str, what: str) -> None:
        if self.kind != kind:
            raise ShapeError(f"the network does not accept {what}", got=what, expected=self.expected)

    def _check_count(self, count: int, of_numbers: bool = False) -> None:
        if not count:
            raise ShapeError("the request is empty", got="no inputs", expected=self.expected)
        most = max(self.limits.batch, max(self.shape) if of_numbers else 0)
        if count > most:
            raise TooLarge("too many inputs in one request", got=count, expected=f"at most {most}")

    def _check_pixels(self, count: int, times: int = 1, what: str = "an image is too large") -> None:
        most = times * self.limits.pixels
        if count > most:
            raise TooLarge(what, got=f"{count} pixels", expected=f"at most {most}")

    # -- answers --------------------------------------------------------------------------------

    def answers(self, inputs: Tensor) -> list[Answer]:
        """Predict a batch: label, probability, interval, scores, reliability, known; details on request."""
        batch = Answers(self.model, inputs, len(inputs), threshold=self.threshold)
        return [Answer(batch, row, line) for row, line in enumerate(batch)]

    def about(self) -> dict[str, Any]:
        """Return a description: classes, sets, inputs, reliability, threshold, metrics and limits."""
        model, threshold = self.model, self.threshold
        network: Any = model if model.bounded else None
        family = None if network is None else network.budget.with_universal_set()
        sets = [] if family is None else [list(family.names_of(i)) for i in range(len(family))]
        fitted = [part for part in model.modules() if isinstance(part, Reliability)]  # one for each member
        reliability = {"kind": fitted[0].kind, "familiar_from": model.familiar_from} if fitted else None
        return {
            "method": model.method,
            "randomset": randomset.__version__,
            "classes": self.classes,
            "sets": sets,
            "input": {"kind": self.kind, "shape": self.shape, "expected": self.expected},
            "reliability": reliability,
            "threshold": None if threshold is None else {"score": threshold.score, "value": threshold.value},
            "metrics": model.notes.get("test") or self._measured(),
            "limits": {
                "bytes": self.limits.bytes, "pixels": self.limits.pixels, "batch": self.limits.batch
            },
        }  # fmt: skip

    def _measured(self) -> dict[str, Any]:
        try:
            document = read_document(self.run / "test.json", "randomset.test", 1, "the test")
        except FileFormatError:
            return {}
        return {name: value for name, value in document.items() if name not in ("format", "version")}


def _configure_pillow(pixels: int) -> None:
    """Raise Pillow's limit on pixels to the service's, and silence its warnings.

    The limit is never lowered or removed: it is the whole process's, and the only guard against files whose
    tiles are larger than the image.
    """
    try:
        from PIL import Image
    except ImportError:
        return  # reported when a file arrives
    Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS or 0, pixels)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # here, since filters are not thread-safe
