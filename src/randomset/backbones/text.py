"""Texts as token ids, and the encoder that turns them into features."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from randomset.backbones.hub import import_transformers, load_from_hub
from randomset.errors import FileFormatError, LabelError

__all__ = ["PADDING", "TokenEncoder", "load_tokenizer", "max_tokens", "tokenize"]

# Models that number positions from pad_token_id + 1.
_POSITIONS_AFTER_PADDING = {
    *("roberta", "xlm-roberta", "camembert", "roberta-prelayernorm", "xmod", "mpnet", "data2vec-text"),
}

PADDING = -1
"""Fills the rows of texts that are shorter than the tensor."""


class TokenEncoder(nn.Module):
    """Mean over the tokens of a Hugging Face encoder: ids (B × T), padded with −1 → features (B × F).

    Columns that are padding in the whole batch are dropped first, so that short texts cost little.
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
    """Load a model's tokenizer from a folder or by name; a `Path` is always a folder."""
    if not isinstance(name, str) and not Path(name).is_dir():
        raise FileFormatError("tokenizer not found", got=str(name), expected="a folder with tokenizer.json")
    auto_tokenizer = import_transformers().AutoTokenizer
    tokenizer = load_from_hub(auto_tokenizer.from_pretrained, str(name), "tokenizer.json")
    # Without tokenizer files, transformers returns one with an empty vocabulary.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise FileFormatError(
            "the model has no tokenizer",
            got=f"hf:{name}, whose vocabulary is empty",
            expected="tokenizer.json, vocab.txt or similar next to config.json",
            remedy="Copy the tokenizer's files into the folder",
        )
    return tokenizer


def max_tokens(name: str | os.PathLike[str]) -> int | None:
    """Return the longest text that a model accepts, or None if its configuration sets no limit."""
    config = load_from_hub(import_transformers().AutoConfig.from_pretrained, str(name), "config.json")
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    if config.model_type in _POSITIONS_AFTER_PADDING and isinstance(config.pad_token_id, int):
        return positions - config.pad_token_id - 1
    return positions


def tokenize(texts: Sequence[str], tokenizer: Any, length: int = 256) -> Tensor:
    """Turn texts into token ids (n × `length`); longer texts are truncated, shorter ones padded."""
    empty = [row for row, text in enumerate(texts) if not text.strip()]
    if empty:
        raise LabelError(
            "a document is empty",
            got=f"row {empty[0]}" + (f" and {len(empty) - 1} more" if len(empty) > 1 else ""),
            expected="some text in each",
        )
    encoded = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    tokens = torch.full((len(encoded), length), PADDING, dtype=torch.long)
    for row, ids in enumerate(encoded):
        tokens[row, : len(ids)] = torch.tensor(ids)
    return tokens
