"""A run folder as something that answers requests: it reads what strangers send, within limits."""

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

from randomset._core.files import read_document
from randomset.backbones.inputs import convert_images
from randomset.data.images import pixels_from_pil
from randomset.errors import FileFormatError, MissingPackageError, RandomSetError, ShapeError
from randomset.evaluation.ood import Threshold
from randomset.models import load as load_model
from randomset.serving.answers import Answers, classes_of

__all__ = ["Answer", "Limits", "ServedModel", "TooLarge"]

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # Pillow knows more, some of them through old code
_TOKENIZER = "tokenizer"
_TOGETHER = 4  # the images of a request may have as many pixels as this many of the largest
_NUMBER = 24  # bytes of a number in JSON, with room


@dataclass(frozen=True)
class Limits:
    """How much one request, and all that wait, may ask for."""

    bytes: int = 32 * 2**20
    pixels: int = 40_000_000
    batch: int = 256
    waiting: int = 2048
    requests: int = 64
    seconds: float = 30.0


class TooLarge(RandomSetError):
    """More than the service takes in one request."""


@dataclass(frozen=True)
class Answer:
    """One prediction of a batch; a thousand classes would make its details long."""

    batch: Answers
    row: int
    line: dict[str, Any]

    def whole(self) -> dict[str, Any]:
        """Return it with the probabilities and intervals of all classes, and the masses of all sets."""
        return {**self.line, **self.batch.details(self.row), "intervals": self.batch.intervals(self.row)}


class ServedModel:
    """A trained model with its threshold, and the ways from bytes, numbers and texts to its inputs.

    Args:
        run: the run folder.
        limits: what a request may ask for.
    """

    def __init__(self, run: Path, limits: Limits | None = None) -> None:
        self.run, self.limits = run, limits or Limits()
        self.model, self.threshold = load_model(run), Threshold.load(run)
        self.classes = list(classes_of(self.model))
        notes = self.model.notes
        self.shape: list[int] = notes.get("input_shape") or []
        if not self.shape:
            raise RandomSetError("the run does not tell what its inputs look like", got=str(run))
        self.largest = float(notes.get("largest_input") or 1)
        self.kind = {1: "features", 3: "images"}.get(len(self.shape), "arrays")
        self.tokens: int = notes.get("tokens") or 0
        if self.tokens:
            from randomset.backbones.text import load_tokenizer

            self.kind, self.tokenizer = "texts", load_tokenizer(run / _TOKENIZER)
        if self.kind == "images":
            _trust_our_limits()
        self.warm()

    @property
    def longest_json(self) -> int:
        """How long a body of JSON may be: reading it holds everything else up."""
        numbers = _NUMBER * self.limits.batch * math.prod(self.shape)
        return self.limits.bytes if self.tokens else min(self.limits.bytes, max(4 * 2**20, numbers))

    def warm(self) -> None:
        """Predict once, so that the first request need not wait for what torch sets up."""
        self.answers(torch.full((1, *self.shape), 1) if self.tokens else torch.zeros(1, *self.shape))

    # -- inputs ---------------------------------------------------------------------------------

    def from_files(self, files: list[bytes], until: float = math.inf) -> Tensor:
        """Decode images to what the network takes; stop when `time.monotonic()` is past `until`."""
        self._check_kind("images", "image files")
        self._check_count(len(files))
        pixels = 0
        for number, content in enumerate(files):  # the heads of files tell before anything is decoded
            with self._opened(number, content) as picture:
                pixels += picture.width * picture.height
                self._check_pixels(picture.width * picture.height)
        self._check_pixels(pixels, _TOGETHER, "the images of a request are too large together")
        images = []
        for number, content in enumerate(files):
            if time.monotonic() > until:
                raise asyncio.TimeoutError  # nobody waits for the rest
            with self._opened(number, content) as picture:
                images.append(pixels_from_pil(picture, (self.shape[1], self.shape[2]), self.shape[0] == 1))
        return torch.stack(images)

    def from_numbers(self, numbers: Any, bytes: bool = False) -> Tensor:
        """Turn nested lists, one sample or a batch, into inputs; images may be of another size."""
        if self.kind == "texts":
            raise ShapeError("the network reads texts", got="numbers", expected='{"texts": [...]}')
        if isinstance(numbers, list):
            self._check_count(len(numbers), of_numbers=True)
        try:
            array = np.asarray(numbers)
        except (TypeError, ValueError, OverflowError, RecursionError):
            array = np.array(None)
        if array.dtype.kind not in "iuf":
            raise ShapeError("the inputs are no regular arrays of numbers", got=type(numbers).__name__)
        with np.errstate(over="ignore"):  # what is too large for the network becomes infinite, and is refused
            inputs = torch.from_numpy(array.astype(np.float32))
        if not inputs.numel() or not inputs.isfinite().all():
            raise ShapeError("the inputs hold no numbers, or some that are not finite", got=str(array.shape))
        inputs = self._batch(inputs)
        self._check_count(len(inputs))
        if self.kind == "images":
            self._check_pixels(inputs.shape[2] * inputs.shape[3])
            top = 255.0 if bytes else max(self.largest, 1.0)
            if self.largest <= 1.5 and not (inputs.min() >= 0 and inputs.max() <= top):
                raise ShapeError(
                    "the pixels are out of range",
                    got=f"from {inputs.min():g} to {inputs.max():g}",
                    expected=f"numbers from 0 to {top:g}",
                    remedy="" if bytes else 'For numbers up to 255, send "bytes": true',
                )
            if bytes and (inputs != inputs.round()).any():
                raise ShapeError(
                    "bytes are whole numbers", got=f"{inputs.max():g} at most, and fractions",
                    remedy='For numbers from 0 to 1, leave "bytes" out',
                )  # fmt: skip
            inputs = convert_images(inputs / 255 if bytes else inputs, self.shape)[0]
        if list(inputs.shape[1:]) != self.shape:
            raise ShapeError(
                "the inputs do not fit the network", got=str(tuple(inputs.shape)), expected=self.expected
            )
        return inputs

    def from_texts(self, texts: Any) -> Tensor:
        """Turn texts into tokens."""
        from randomset.backbones.text import tokenize

        self._check_kind("texts", "texts")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise ShapeError("these are no texts", got=type(texts).__name__, expected="a list of strings")
        self._check_count(len(texts))
        return tokenize(texts, self.tokenizer, self.tokens)

    @property
    def expected(self) -> str:
        """What an input looks like, in words."""
        if self.kind == "texts":
            return "texts"
        return (
            " × ".join(["n", *map(str, self.shape)]) + f" {'images' if self.kind == 'images' else 'numbers'}"
        )

    def _batch(self, inputs: Tensor) -> Tensor:
        """Give a single sample, or a grey image without a channel, the dimensions that it lacks."""
        if self.kind == "images" and inputs.dim() == 2:
            inputs = inputs[None]
        if inputs.dim() == len(self.shape):
            several = self.kind == "images" and self.shape[0] == 1 and len(inputs) > 1
            inputs = inputs[:, None] if several else inputs[None]  # grey images need no channel
        if self.kind == "images" and inputs.dim() == 4 and inputs.shape[1] not in (1, 3, 4):
            raise ShapeError(
                "images have 1, 3 or 4 channels", got=str(tuple(inputs.shape)), expected=self.expected
            )
        if inputs.dim() != len(self.shape) + 1:
            raise ShapeError(
                "the inputs do not fit the network", got=str(tuple(inputs.shape)), expected=self.expected
            )
        return inputs

    @contextmanager
    def _opened(self, number: int, content: bytes) -> Iterator[Any]:
        """Open an image file; what cannot be read, now or while it is decoded, is the sender's mistake."""
        try:
            from PIL import Image
        except ImportError:
            raise MissingPackageError("pillow", "serve") from None
        place = f"file {number + 1}"
        try:
            with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
                yield picture
        except (TooLarge, asyncio.TimeoutError):
            raise
        except (MemoryError, Image.DecompressionBombError):
            raise TooLarge("an image is too large", got=place) from None
        except Exception as error:  # Pillow's readers raise errors of many kinds on broken files
            why = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            why = "no image" if "cannot identify" in why else why
            raise ShapeError(
                "a file is no image that can be read",
                got=f"{place}: {why}",
                expected=", ".join(_FORMATS),
            ) from None

    def _check_kind(self, kind: str, what: str) -> None:
        if self.kind != kind:
            raise ShapeError(f"the network takes no {what}", got=what, expected=self.expected)

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
        """Predict a batch: label, probability, interval, uncertainties, known; the details on request."""
        found = Answers(self.model, inputs, len(inputs), threshold=self.threshold)
        return [Answer(found, row, line) for row, line in enumerate(found)]

    def about(self) -> dict[str, Any]:
        """Say what the model is: classes, sets, inputs, threshold, what was measured."""
        import randomset

        model, threshold = self.model, self.threshold
        network: Any = model if model.bounded else None
        family = None if network is None else network.budget.with_universal_set()
        sets = [] if family is None else [list(family.names_of(i)) for i in range(len(family))]
        return {
            "method": "rsnn" if network is not None else getattr(model, "method", ""),
            "randomset": randomset.__version__,
            "classes": self.classes,
            "sets": sets,
            "input": {"kind": self.kind, "shape": self.shape, "expected": self.expected},
            "threshold": None if threshold is None else {"score": threshold.score, "value": threshold.value},
            "metrics": model.notes.get("test") or self._measured(),
            "limits": {
                "bytes": self.limits.bytes, "pixels": self.limits.pixels, "batch": self.limits.batch
            },
        }  # fmt: skip

    def _measured(self) -> dict[str, Any]:
        try:
            found = read_document(self.run / "test.json", "randomset.test", 1, "the test")
        except FileFormatError:
            return {}
        return {name: value for name, value in found.items() if name not in ("format", "version")}


def _trust_our_limits() -> None:
    """Let the limits of the service decide what is too large, not Pillow's; hush its remarks on odd files."""
    try:
        from PIL import Image
    except ImportError:
        return  # said when a file comes
    Image.MAX_IMAGE_PIXELS = None
    warnings.filterwarnings("ignore", module=r"PIL\.")  # once: filters are no affair of threads
