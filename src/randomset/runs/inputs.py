"""Sources brought into the form that a trained network takes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from randomset._core.checks import is_number, is_whole
from randomset.errors import FileFormatError, ShapeError

if TYPE_CHECKING:
    from randomset.data.sources import Source
    from randomset.evaluation import Evaluation
    from randomset.models.base import Classifier

__all__ = ["TOKENIZER", "NetworkInputs", "as_measured", "few", "own_data"]

TOKENIZER = "tokenizer"
"""The folder with the tokenizer's files in the run folder of a network that reads texts."""


class NetworkInputs:
    """Loads sources as a run recorded its own: size, columns, scale; `remarks` say what was converted."""

    def __init__(self, network: Classifier, run: Path, strict: bool, text_column: str | None = None) -> None:
        _check_notes(network.notes, run)
        self.notes, self.run, self.strict, self.text_column = network.notes, run, strict, text_column
        self.config = network.notes.get("config") or {}
        self.shape: list[int] | None = network.notes.get("input_shape")

    def __call__(self, source: str, split: str = "test", *, labelled: bool = True) -> Source:
        """Load a source, and make it fit or say why it cannot."""
        from randomset.data.sources import load_source

        found = load_source(
            source,
            split,
            labelled=labelled,
            label=self.config.get("label_column"),
            text=self.text_column or self.config.get("text_column"),
            columns=self.notes.get("columns"),
            size=None if self.shape is None or len(self.shape) != 3 else (self.shape[1], self.shape[2]),
            strict=self.strict,
        )
        return self.fitting(found)

    def fitting(self, source: Source) -> Source:
        """Convert images to the network's size and colour; refuse what cannot be converted."""
        from randomset.data.conversion import converted

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
        """Turn texts into the numbers of tokens that the run's own tokenizer gives."""
        from randomset.backbones.text import load_tokenizer, tokenize

        length = self.notes.get("tokens")
        if source.kind != "text" or not length:
            kind = "texts" if length else "no texts"
            remedy = "Name the column of texts: --text-column" if length and source.kind == "features" else ""
            raise ShapeError(
                f"the network takes {kind}", got=f"{source.name} with {source.kind}", remedy=remedy
            )
        tokens = tokenize(source.inputs, load_tokenizer(self.run / TOKENIZER), length)
        return dataclasses.replace(source, kind="tokens", inputs=tokens)

    def _check_scale(self, source: Source) -> None:
        """Refuse images whose numbers mean something else than in the training."""
        largest = self.notes.get("largest_input")
        if not isinstance(largest, float) or not largest > 0:
            return
        tensor = source.inputs
        whole = not tensor.is_floating_point()
        found = float(tensor.max()) if whole else float(tensor.abs().max())
        if (whole and largest > 1.5) or (not whole and found > 20 * largest):
            expected = f"values up to about {largest:g}"
            if largest <= 1.5:
                expected += ", or bytes (uint8), which are divided by 255"
            raise ShapeError(
                "the images are on another scale than those of the training",
                got=f"{source.name} with {'bytes' if whole else 'values'} up to {found:g}",
                expected=expected,
            )


def _check_notes(notes: dict[str, Any], run: Path) -> None:
    """Refuse a model whose training has not ended, or whose notes are not as they were written."""
    config = notes.get("config") or {}
    if not config and (run / "config.json").exists():
        raise FileFormatError(
            "the training of this run has not ended",
            got=str(run),
            remedy=f"Go on with it: randomset train --out {run} --resume",
        )
    texts = [config.get(name, "") for name in _TEXTS] if isinstance(config, dict) else [None]
    shape, tokens, columns = (notes.get(name) for name in ("input_shape", "tokens", "columns"))
    right = {
        "config": isinstance(texts[0], str) and all(one is None or isinstance(one, str) for one in texts),
        "input_shape": shape is None or (_is_list(shape, int) and min(shape, default=0) > 0),
        "tokens": tokens is None or is_whole(tokens, 1),
        "columns": columns is None or _is_list(columns, str),
        "classes": _is_list(notes.get("classes", []), str),
        "seconds": is_number(notes.get("seconds", 0)),
    }
    if wrong := [name for name, fine in right.items() if not fine]:
        raise FileFormatError(
            "the model's notes on its inputs are not as they were written",
            got=f"{wrong[0]} {notes.get(wrong[0])!r:.60} in {run}",
            remedy="Train it anew",
        )


_TEXTS = ("source", "label_column", "text_column")


def _is_list(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def own_data(
    run: Path,
    load: NetworkInputs,
    test: str | None = None,
    validation: str | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> tuple[Source, Source | None, Source | None]:
    """Return test, validation and calibration data: those that are named, else those of the run.

    Where the source of the training itself is named, what it held back is meant, not what it learned from.
    """
    from randomset.data.splits import Parts

    own = load.config.get("source", "")
    test, validation = (
        None if name is not None and _same(name, own) else name for name in (test, validation)
    )
    tested = None if test is None else load(test)
    held = None if validation is None else load(validation)
    calibrating = None
    if (run / "split.json").exists() and (tested is None or held is None):
        try:
            data = load(own, "train")
            parts = Parts.load(run / "split.json", data)
        except FileFormatError as error:
            if tested is None:
                raise
            say(f"The data of the training cannot be used for a threshold: {error}")
            return tested, held, None
        if tested is None:
            tested = load(own) if parts.test is None else data.part(parts.test)
        data = dataclasses.replace(data, remarks=())  # they were said of the test data
        held = data.part(parts.validation) if held is None and len(parts.validation) else held
        calibrating = data.part(parts.calibration) if len(parts.calibration) else None
    if tested is None or not len(tested):
        raise FileFormatError(
            "the run held back nothing to test on", got=str(run), remedy="Name labelled data: --test SOURCE"
        )
    return tested, held, calibrating


def few(source: Source, limit: int | None, seed: int) -> Source:
    """Draw some of the inputs by a seed, or leave all."""
    import torch

    if limit is None or len(source) <= limit:
        return source
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))
    return source.part(order[:limit].sort().values)


def as_measured(source: Source, result: Evaluation, name: str) -> Source:
    """Leave out the inputs that an evaluation left out."""
    import torch

    out = result.numbers.get("left_out", {}).get(name, [])
    if not out:
        return source
    kept = torch.ones(len(source), dtype=torch.bool)
    kept[[place for place in out if place < len(source)]] = False
    return source.part(kept.nonzero()[:, 0])


def _same(name: str, own: str) -> bool:
    return own in (name, os.path.realpath(name))
