"""Texts as token numbers, and encoders that turn them into features."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from randomset._core.progress import on_terminal
from randomset._core.torchvision import import_torchvision_first
from randomset.errors import FileFormatError, LabelError, MissingPackageError

__all__ = [
    "FILLING",
    "TokenEncoder",
    "hugging_face",
    "load_tokenizer",
    "looked_up",
    "most_tokens",
    "tokenised",
]

_COUNT_FROM_FILLING = {
    "roberta",
    "xlm-roberta",
    "camembert",
    "roberta-prelayernorm",
    "xmod",
    "mpnet",
    "data2vec-text",
}
# their first position comes behind that of the filling token

_NAME = r"\w[\w.-]*(/\w[\w.-]*)?"
"""What the hub calls a model."""

FILLING = -1
"""What stands behind the last token of a text that is shorter than others."""


class TokenEncoder(nn.Module):
    """A Hugging Face encoder, its tokens averaged: numbers (B × T), filled up with −1 → features (B × F).

    The columns that are filling for the whole batch are cut off first, so that short texts cost little.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean over the tokens of each text."""
        used = tokens >= 0
        if not torch.compiler.is_compiling():
            longest = max(int(used.sum(1).max()), 1)
            tokens, used = tokens[:, :longest], used[:, :longest]
        ids = tokens.long().clamp_min(0)
        states = self.model(input_ids=ids, attention_mask=used.long()).last_hidden_state
        weight = used.to(states.dtype)
        return torch.einsum("btf,bt->bf", states, weight) / weight.sum(1, keepdim=True).clamp_min(1)


def load_tokenizer(name: str | os.PathLike[str]) -> Any:
    """Load the tokenizer of a model, from a folder or by its name; a path is never taken for a name."""
    if not isinstance(name, str) and not Path(name).is_dir():
        raise FileFormatError("there is no tokenizer", got=str(name), expected="a folder with tokenizer.json")
    found = looked_up(hugging_face().AutoTokenizer.from_pretrained, str(name), "tokenizer.json")
    if len(found) <= len(found.all_special_tokens):  # transformers makes up an empty one where there is none
        raise FileFormatError(
            "the model has no tokenizer",
            got=f"hf:{name}, which knows no words",
            expected="tokenizer.json, vocab.txt or the like beside config.json",
            remedy="Copy the tokenizer's files into the folder",
        )
    return found


def most_tokens(name: str | os.PathLike[str]) -> int | None:
    """Return how long a text may be that a model reads, if it says so."""
    settings = looked_up(hugging_face().AutoConfig.from_pretrained, str(name), "config.json")
    positions = getattr(settings, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    if settings.model_type in _COUNT_FROM_FILLING and isinstance(settings.pad_token_id, int):
        return positions - settings.pad_token_id - 1
    return positions


def tokenised(texts: Sequence[str], tokenizer: Any, length: int = 256) -> Tensor:
    """Turn texts into token numbers (n × `length`); longer texts are cut, shorter filled up."""
    empty = [place for place, text in enumerate(texts) if not text.strip()]
    if empty:
        raise LabelError(
            "a document is empty",
            got=f"row {empty[0]}" + (f" and {len(empty) - 1} more" if len(empty) > 1 else ""),
            expected="some text in each",
        )
    found = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    tokens = torch.full((len(found), length), FILLING, dtype=torch.long)
    for row, numbers in enumerate(found):
        tokens[row, : len(numbers)] = torch.tensor(numbers)
    return tokens


def hugging_face() -> Any:
    """Import transformers."""
    import_torchvision_first()
    try:
        import transformers
    except ImportError:
        raise MissingPackageError("transformers", "text") from None
    if not on_terminal():
        transformers.utils.logging.disable_progress_bar()  # its bar would fill a log
    return transformers


def looked_up(load: Callable[..., Any], name: str, file: str, **options: Any) -> Any:
    """Load from a folder or the local cache; only then ask the hub; say what is missing.

    Code that lies beside a model is never run.
    """
    if Path(name).is_dir():
        if not any((Path(name) / each).is_file() for each in (file, "config.json")):
            raise FileFormatError("the folder holds no model of Hugging Face", got=name, expected=file)
        attempts = [True]
    else:
        attempts = [True] if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else [True, False]
    error: Exception | None = None
    if not Path(name).is_dir() and not re.fullmatch(_NAME, name):  # an address, or a folder that is not there
        attempts, error = [], ValueError("no folder, and no name of a model")
    for local in attempts:
        try:
            return load(name, local_files_only=local, trust_remote_code=False, **options)
        except (
            Exception
        ) as found:  # of files that are missing, damaged, of another shape, or not only weights
            error = found
    said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    raise FileFormatError(
        "the model cannot be loaded from its folder"
        if Path(name).is_dir()
        else "the model is not on this machine and could not be fetched",
        got=f"hf:{name} ({said})",
        expected=f"a folder with {'' if file == 'config.json' else file + ', '}config.json and, for texts, a "
        "tokenizer",
        remedy="Copy the whole model into a folder and name it: hf:FOLDER",
    )
