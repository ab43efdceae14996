"""Hugging Face encoders by name or folder, and texts as the token ids that they take."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from randomset._core.checks import listed
from randomset.backbones.base import (
    LibraryBackbone,
    LibraryClassifier,
    LibraryRequest,
    PretrainedInputs,
)
from randomset.backbones.surgery import last_linear, replace_with_identity
from randomset.backbones.weights import (
    check_finite,
    import_transformers,
    load_from_hub,
    mismatched_weights,
    read_weights,
)
from randomset.errors import FileFormatError, LabelError, RandomSetError, first_line

__all__ = [
    "PADDING",
    "TokenEncoder",
    "check_config",
    "classifier_from_hugging_face",
    "config_to_dict",
    "default_image_size",
    "from_hugging_face",
    "load_tokenizer",
    "max_tokens",
    "offline",
    "tokenize",
]

# Keys with which a configuration can refer to code, or to models that transformers would look up.
_EXTERNAL_KEYS = (
    "architecture",
    "auto_map",
    "backbone",
    "quantization_config",
    "use_pretrained_backbone",
    "use_timm_backbone",
)
# Models that number positions from pad_token_id + 1.
_POSITIONS_AFTER_PADDING = (
    "roberta",
    "xlm-roberta",
    "camembert",
    "roberta-prelayernorm",
    "xmod",
    "mpnet",
    "data2vec-text",
)
PADDING = -1
"""The token id that fills up the rows of shorter texts."""


def from_hugging_face(request: LibraryRequest) -> LibraryBackbone:
    """Build a Hugging Face encoder for texts or images."""
    model, settings, inputs = _model(request)
    is_text = _reads_texts(settings)
    if is_text and isinstance(getattr(model, "pooler", None), nn.Module):
        model.pooler = None  # tokens are averaged instead
    width = getattr(settings, "hidden_size", None) or settings.hidden_sizes[-1]
    if is_text:
        return LibraryBackbone(TokenEncoder(model), int(width))
    return LibraryBackbone(model, int(width), settings.num_channels, inputs)


def classifier_from_hugging_face(request: LibraryRequest) -> LibraryClassifier:
    """Build a Hugging Face classifier of texts or images, split before its last layer.

    Without weights, that layer is untrained.
    """
    model, settings, inputs = _model(request, whole=True)
    if settings.problem_type == "multi_label_classification":
        raise RandomSetError(
            "the classifier predicts several labels", got=request.name, expected="one label per input"
        )
    last = last_linear(model, num_classes=settings.num_labels)
    layer: Any = model.get_submodule(last)
    backbone = LibraryBackbone(model, layer.in_features, getattr(settings, "num_channels", None), inputs)
    if _reads_texts(settings):
        backbone.layers, backbone.channels = TokenEncoder(model, mean=False), None
    if not request.pretrained:
        replace_with_identity(model, last)
        return LibraryClassifier(backbone, layer, ())
    size = 8 if inputs is None else inputs.size
    given = torch.ones(2, size).long() if inputs is None else torch.rand(2, settings.num_channels, size, size)
    with torch.no_grad():
        outputs = backbone.eval()(given)
        replace_with_identity(model, last)
        layer = request.split_classifier(outputs, backbone, layer, given)
    names = tuple(str(settings.id2label[place]) for place in range(settings.num_labels))
    named = any(text != f"LABEL_{place}" for place, text in enumerate(names))
    return LibraryClassifier(backbone, layer, names if named else ())


def _reads_texts(settings: Any) -> bool:
    return hasattr(settings, "vocab_size") and not hasattr(settings, "num_channels")


def _model(request: LibraryRequest, *, whole: bool = False) -> tuple[Any, Any, PretrainedInputs | None]:
    """Build an encoder, or the `whole` classifier; also return its configuration and its inputs."""
    config, image_size = request.config, request.image_size
    if config is not None:
        options = {key: value for key, value in config.items() if key != "model_type"}
        settings = import_transformers().AutoConfig.for_model(config["model_type"], **options)
    else:
        settings = _load_config(request.model)
    is_text = _reads_texts(settings)
    if not is_text and config is None:
        if request.pretrained:
            request.check_channels(settings.num_channels)
            request.check_image_size(getattr(settings, "image_size", None))
        else:
            settings.num_channels = request.in_channels
            if image_size is not None and hasattr(settings, "image_size"):
                settings.image_size = image_size
    if not is_text:
        request.check_patch_size(getattr(settings, "patch_size", None))
    kind = f"AutoModelFor{'Sequence' if is_text else 'Image'}Classification" if whole else "AutoModel"
    auto_model = getattr(import_transformers(), kind)
    if not request.pretrained:
        return auto_model.from_config(settings, trust_remote_code=False), settings, None
    model = _load_pretrained(request, settings, auto_model)
    if is_text:
        return model, settings, None
    inputs = _pretrained_inputs(request.model, image_size or getattr(settings, "image_size", 224))
    return model, settings, inputs


def default_image_size(name: str) -> int | None:
    """Return the image size in a model's configuration, if any."""
    size = getattr(_load_config(name), "image_size", None)
    return int(size) if isinstance(size, int) else None


def _load_config(name: str) -> Any:
    return load_from_hub(import_transformers().AutoConfig.from_pretrained, name, "config.json")


def _load_pretrained(request: LibraryRequest, settings: Any, auto_model: Any) -> Any:
    """Load a model with weights; raise if any are missing, since transformers would leave these random."""
    whole = auto_model.__name__ != "AutoModel"
    options: dict[str, Any] = {"config": settings, "output_loading_info": True}
    default = request.weights == "default"
    origin = request.name if default else str(request.weights)
    with _errors_only():
        if default:
            load = auto_model.from_pretrained
            model, info = load_from_hub(load, request.model, "model.safetensors", **options)
        else:
            state = read_weights(Path(request.weights))
            try:
                model_class = type(auto_model.from_config(settings, trust_remote_code=False))
                model, info = model_class.from_pretrained(None, state_dict=state, **options)
            except (RuntimeError, ValueError) as error:
                raise mismatched_weights(f"{origin}: {first_line(error)}") from None
    missing = [key for key in info["missing_keys"] if whole or "pooler" not in key]
    if missing:
        raise mismatched_weights(
            origin, f"the tensors of {type(model).__name__}", missing, info["unexpected_keys"]
        )
    check_finite(model.state_dict(), origin)
    return model


@contextmanager
def _errors_only() -> Iterator[None]:
    """Silence transformers' table of missing weights, which we report as an error."""
    logging = import_transformers().utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _pretrained_inputs(name: str, image_size: Any) -> PretrainedInputs:
    """Read mean and std from a folder's preprocessor_config.json; 0.5 without one."""
    size = int(image_size if isinstance(image_size, int) else max(image_size))
    try:
        settings = json.loads((Path(name) / "preprocessor_config.json").read_text(encoding="utf-8"))
        return PretrainedInputs(tuple(settings["image_mean"]), tuple(settings["image_std"]), size)
    except (OSError, ValueError, KeyError, TypeError):
        remark = "no preprocessor_config.json: mean and std are assumed to be 0.5"
        return PretrainedInputs((0.5,) * 3, (0.5,) * 3, size, remark)


def check_config(config: Any) -> None:
    """Raise if a configuration from a file refers to code or other models, at any level of nesting."""
    if isinstance(config, dict):
        external = {key for key in _EXTERNAL_KEYS if config.get(key)}
        external |= {
            key
            for key, value in config.items()
            if str(key).endswith("_implementation") and set("/:|") & set(str(value))  # kernels on the hub
        }
        if str(config.get("model_type")).startswith("timm"):
            external.add("model_type")
        if external:
            raise FileFormatError(
                "the network configuration refers to code or models outside its file",
                got=f"{min(external)} {config[min(external)]!r:.60}",
            )
    for part in config.values() if isinstance(config, dict) else config if isinstance(config, list) else ():
        check_config(part)


@contextmanager
def offline() -> Iterator[None]:
    """Prevent requests to the Hugging Face Hub."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def config_to_dict(model: nn.Module) -> dict[str, Any]:
    """Return the configuration for JSON, without the path it came from or references to code."""
    inner: Any = model.model if isinstance(model, TokenEncoder) else model
    return _without_keys(inner.config.to_dict(), ("_name_or_path", "transformers_version", "auto_map"))


def _without_keys(config: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(config, dict):
        return config
    return {key: _without_keys(value, keys) for key, value in config.items() if key not in keys}


class TokenEncoder(nn.Module):
    """Mean over the tokens of a Hugging Face encoder: ids (B × T), padded with −1 → features (B × F).

    Columns that are padding in the whole batch are dropped first, so that short texts cost little.

    Args:
        model: the encoder.
        mean: whether to average over tokens; a classifier without its last layer yields features itself.
    """

    def __init__(self, model: nn.Module, *, mean: bool = True) -> None:
        super().__init__()
        self.model, self.mean = model, mean
        padding = None if mean else getattr(model.config, "pad_token_id", None)
        self.padding = padding if isinstance(padding, int) else 0

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the features of each text."""
        used = tokens >= 0
        if not torch.compiler.is_compiling():
            longest = max(int(used.sum(1).max()), 1)
            tokens, used = tokens[:, :longest], used[:, :longest]
        ids = torch.where(used, tokens.long(), self.padding)
        output = self.model(input_ids=ids, attention_mask=used.long())
        if not self.mean:
            return output.logits
        states = output.last_hidden_state
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
    config = _load_config(str(name))
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
            got=f"row {listed(empty, shown=1)}",
            expected="some text in each",
        )
    encoded = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    tokens = torch.full((len(encoded), length), PADDING, dtype=torch.long)
    for row, ids in enumerate(encoded):
        tokens[row, : len(ids)] = torch.tensor(ids)
    return tokens
