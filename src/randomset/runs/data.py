"""The data of a run: its held-out samples or other sources, in the form that its network takes."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from randomset._core.checks import is_number
from randomset.backbones.hugging_face import load_tokenizer, tokenize
from randomset.backbones.inputs import InputSpec
from randomset.data.sources import Source, load_source
from randomset.data.splits import Parts, unseen
from randomset.errors import FileFormatError, ShapeError
from randomset.evaluation.result import Evaluation
from randomset.models.base import Classifier

__all__ = ["TOKENIZER", "HeldOut", "NetworkInputs", "drawn", "measured_inputs", "own_data"]

TOKENIZER = "tokenizer"
"""The folder with the tokenizer's files in the run folder of a network that reads texts."""


class NetworkInputs:
    """Loads sources in the form of the run's training data (size, columns, scale).

    The remarks of a loaded source report conversions.
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
            spec = replace(spec, bytes=True)  # images stay bytes until prediction, in a quarter of the memory
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
    """Return the settings in the notes of a model; reject unfinished runs and damaged notes."""
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


logger = logging.getLogger(__name__)


class HeldOut(NamedTuple):
    """The test, validation and calibration data of a run."""

    test: Source
    validation: Source | None
    calibration: Source | None


def own_data(
    run: Path, load: NetworkInputs, test: str | None = None, validation: str | None = None
) -> HeldOut:
    """Return test, validation and calibration data: the named sources, or the run's held-out samples.

    The name of the training source selects its held-out samples. From any other test or validation data,
    samples that the run was trained on are excluded. If the run's own source has changed, its samples are
    recognised by their content: see `randomset.data.splits.Parts.match`.
    """
    own, split = load.config.get("source", ""), run / "split.json"
    test, validation = (
        None if name is not None and own in (name, os.path.realpath(name)) else name
        for name in (test, validation)
    )
    tested = None if test is None else unseen(split, load(test))
    held = None if validation is None else unseen(split, load(validation))
    calibration = None
    if split.exists() and (tested is None or held is None):
        try:
            data = load(own, "train")
            parts, remarks = Parts.match(split, data)
        except FileFormatError as error:
            if tested is None:
                remedy = "If the training data have moved, say where they are: --test SOURCE"
                raise FileFormatError(str(error).removesuffix("."), remedy=remedy) from None
            logger.warning("No threshold is chosen, as the training data cannot be read: %s", error)
            return HeldOut(tested, held, None)
        if tested is None and parts.test is not None:
            tested = data.part(parts.test)
            tested = replace(tested, remarks=(*data.remarks, *remarks))
        elif tested is None:  # published test data: compared with the training data only if those changed
            tested = unseen(split, load(own)) if remarks else load(own)
        data = replace(data, remarks=())  # the test data have them
        held = data.part(parts.validation) if held is None and len(parts.validation) else held
        calibration = data.part(parts.calibration) if len(parts.calibration) else None
    if tested is None or not len(tested):
        raise FileFormatError(
            "the run has no held-out samples to test on",
            got=str(run),
            remedy="Name labelled data: --test SOURCE",
        )
    return HeldOut(tested, held, calibration)


def drawn(source: Source, limit: int | None, seed: int) -> Source:
    """Draw at most `limit` of the inputs; None keeps all."""
    if limit is None or len(source) <= limit:
        return source
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))
    return source.part(order[:limit].sort().values)


def measured_inputs(source: Source, result: Evaluation, name: str) -> Source:
    """Return a source without the inputs that an evaluation excluded."""
    left_out = result.numbers.get("left_out", {}).get(name, [])
    if not left_out:
        return source
    kept = torch.ones(len(source), dtype=torch.bool)
    kept[[row for row in left_out if row < len(source)]] = False
    return source.part(kept.nonzero()[:, 0])
