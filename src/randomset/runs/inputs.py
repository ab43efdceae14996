"""Load sources in the form that a trained network takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from randomset._core.checks import is_number, is_whole
from randomset.backbones.text import load_tokenizer, tokenised
from randomset.data.catalogue import KNOWN
from randomset.data.conversion import converted
from randomset.data.sources import Source, load_source
from randomset.errors import FileFormatError, ShapeError

__all__ = ["TOKENIZER", "NetworkInputs", "resolved"]

TOKENIZER = "tokenizer"
"""The folder with the tokenizer's files in the run folder of a network that reads texts."""


def resolved(source: str) -> str:
    """Return the absolute path of a source that is a file or folder; names of data sets stay as they are."""
    named = source in ("", "digits", *KNOWN)
    return source if named or not Path(source).exists() else str(Path(source).resolve())


class NetworkInputs:
    """Load sources as a run recorded its own: size, columns, scale.

    The remarks of a loaded source report what was converted.
    """

    def __init__(self, network: Any, run: Path, strict: bool, text_column: str | None = None) -> None:
        _check_notes(network.notes, run)
        self.notes, self.run, self.strict, self.text_column = network.notes, run, strict, text_column
        self.config = network.notes.get("config") or {}
        self.shape: list[int] | None = network.notes.get("input_shape")

    def __call__(self, source: str, split: str = "test", *, labelled: bool = True) -> Source:
        """Load a source and convert it to what the network takes."""
        loaded = load_source(
            source,
            split,
            labelled=labelled,
            label=self.config.get("label_column"),
            text=self.text_column or self.config.get("text_column"),
            columns=self.notes.get("columns"),
            size=None if self.shape is None or len(self.shape) != 3 else (self.shape[1], self.shape[2]),
            strict=self.strict,
        )
        return self.fitting(loaded)

    def fitting(self, source: Source) -> Source:
        """Convert images to the network's size and colour; reject what cannot be converted."""
        if source.kind == "text" or self.notes.get("tokens"):
            return self._tokenised(source)
        tensor, done, shape = source.inputs, list[str](), self.shape
        if shape is not None and len(shape) == 3 and tensor.dim() == 4 and list(tensor.shape[1:]) != shape:
            tensor, done = converted(tensor, shape)
        if shape is not None and list(tensor.shape[1:]) != shape:
            raise ShapeError(
                "the inputs do not fit the network",
                got=f"{source.name} with samples of shape {tuple(tensor.shape[1:])}",
                expected=str(tuple(shape)),
            )
        if tensor.dim() == 4:
            self._check_scale(source)
        return dataclasses.replace(source, inputs=tensor, remarks=(*source.remarks, *done))

    def _tokenised(self, source: Source) -> Source:
        length = self.notes.get("tokens")
        if source.kind != "text" or not length:
            remedy = "Name the column of texts: --text-column" if length and source.kind == "features" else ""
            raise ShapeError(
                "the network takes texts" if length else "the network does not take texts",
                got=f"{source.name} with {source.kind}",
                remedy=remedy,
            )
        tokens = tokenised(source.inputs, load_tokenizer(self.run / TOKENIZER), length)
        return dataclasses.replace(source, kind="tokens", inputs=tokens)

    def _check_scale(self, source: Source) -> None:
        """Reject images whose values are on a different scale than in training."""
        largest = self.notes.get("largest_input")
        if not isinstance(largest, float) or not largest > 0:
            return
        tensor = source.inputs
        whole = not tensor.is_floating_point()
        maximum = float(tensor.max()) if whole else float(tensor.abs().max())
        if (whole and largest > 1.5) or (not whole and maximum > 20 * largest):
            expected = f"values up to about {largest:g}"
            if largest <= 1.5:
                expected += ", or bytes (uint8), which are divided by 255"
            raise ShapeError(
                "the images are on another scale than in training",
                got=f"{source.name} with {'bytes' if whole else 'values'} up to {maximum:g}",
                expected=expected,
            )


def _check_notes(notes: dict[str, Any], run: Path) -> None:
    """Reject a model whose training is unfinished, or whose notes are damaged."""
    config = notes.get("config") or {}
    if not config and (run / "config.json").exists():
        raise FileFormatError(
            "the training of this run is not finished",
            got=str(run),
            remedy=f"Resume it: randomset train --out {run} --resume",
        )
    texts = [config.get(name, "") for name in _TEXTS] if isinstance(config, dict) else [None]
    shape, tokens, columns = (notes.get(name) for name in ("input_shape", "tokens", "columns"))
    valid = {
        "config": isinstance(texts[0], str) and all(text is None or isinstance(text, str) for text in texts),
        "input_shape": shape is None or (_is_list(shape, int) and min(shape, default=0) > 0),
        "tokens": tokens is None or is_whole(tokens, 1),
        "columns": columns is None or _is_list(columns, str),
        "classes": _is_list(notes.get("classes", []), str),
        "seconds": is_number(notes.get("seconds", 0)),
    }
    if wrong := [name for name, is_valid in valid.items() if not is_valid]:
        raise FileFormatError(
            "the model's description of its inputs is damaged",
            got=f"{wrong[0]} {notes.get(wrong[0])!r:.60} in {run}",
            remedy="Train it again",
        )


_TEXTS = ("source", "label_column", "text_column")


def _is_list(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)
