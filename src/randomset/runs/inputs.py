"""Load sources in the form that a trained network takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from randomset._core.checks import is_number
from randomset.backbones.hugging_face import load_tokenizer, tokenize
from randomset.backbones.inputs import InputSpec
from randomset.data.catalogue import KNOWN
from randomset.data.sources import Source, load_source
from randomset.errors import FileFormatError, ShapeError
from randomset.models.base import Classifier

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

    def __init__(self, network: Classifier, run: Path, strict: bool, text_column: str | None = None) -> None:
        self.config = _checked_config(network.notes, run)
        self.spec = InputSpec.from_notes(network.notes, run)
        self.run, self.strict, self.text_column = run, strict, text_column

    def __call__(self, source: str, split: str = "test", *, labelled: bool = True) -> Source:
        """Load a source and convert it to what the network takes."""
        spec = self.spec
        loaded = load_source(
            source,
            split,
            labelled=labelled,
            label=self.config.get("label_column"),
            text=self.text_column or self.config.get("text_column"),
            columns=None if spec is None else spec.columns,
            size=(spec.shape[1], spec.shape[2]) if spec is not None and spec.kind == "images" else None,
            strict=self.strict,
        )
        return self.fitting(loaded)

    def fitting(self, source: Source) -> Source:
        """Convert a source to what the network takes; reject what cannot be converted."""
        spec = self.spec
        if source.kind == "text" or (spec is not None and spec.tokens):
            return self._tokenized(source)
        if spec is None:
            return source
        if source.kind == "images" and source.inputs.dtype == torch.uint8 and not spec.bytes:
            spec.check_scale(source.inputs, source.name)
            spec = replace(
                spec, bytes=True
            )  # images stay bytes until they are predicted: a quarter of the memory
        inputs, done = spec.fit(source.inputs, name=source.name)
        return replace(source, inputs=inputs, remarks=(*source.remarks, *done))

    def _tokenized(self, source: Source) -> Source:
        length = self.spec.shape[0] if self.spec is not None and self.spec.tokens else 0
        if source.kind != "text" or not length:
            remedy = "Name the column of texts: --text-column" if length and source.kind == "features" else ""
            raise ShapeError(
                "the network takes texts" if length else "the network does not take texts",
                got=f"{source.name} with {source.kind}",
                remedy=remedy,
            )
        tokens = tokenize(source.inputs, load_tokenizer(self.run / TOKENIZER), length)
        return replace(source, kind="tokens", inputs=tokens)


def _checked_config(notes: dict[str, Any], run: Path) -> dict[str, Any]:
    """Return the settings in the notes of a model; reject unfinished trainings and damaged notes."""
    config = notes.get("config") or {}
    if not config and (run / "config.json").exists():
        raise FileFormatError(
            "the training of this run is not finished",
            got=str(run),
            remedy=f"Resume it: randomset train --out {run} --resume",
        )
    texts = [config.get(name, "") for name in _TEXTS] if isinstance(config, dict) else [None]
    valid = isinstance(texts[0], str) and all(text is None or isinstance(text, str) for text in texts)
    wrong = "config" if not valid else "" if is_number(notes.get("seconds", 0)) else "seconds"
    if wrong:
        raise FileFormatError(
            "the model's notes on its training are damaged",
            got=f"{wrong} {notes.get(wrong)!r:.60} in {run}",
            remedy="Train it again",
        )
    return config


_TEXTS = ("source", "label_column", "text_column")
