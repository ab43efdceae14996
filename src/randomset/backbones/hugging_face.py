"""Encoders of Hugging Face by name or folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from randomset.backbones.library import ForeignBackbone, Habits, check_channels, check_patches, check_side
from randomset.backbones.text import TokenEncoder, hugging_face, looked_up
from randomset.backbones.weights import check_finite, few_of, read_weights
from randomset.errors import FileFormatError

__all__ = ["check_config", "from_hugging_face", "offline", "plain_config", "usual_size"]

_REACHING = {
    *("auto_map", "architecture", "backbone", "use_pretrained_backbone", "use_timm_backbone"),
    "quantization_config",
}
"""What lets a configuration name code, or models that are looked up by transformers itself."""


def from_hugging_face(
    name: str,
    in_channels: int,
    image_size: int | None,
    config: dict[str, Any] | None,
    weights: str | os.PathLike[str],
) -> ForeignBackbone:
    """Build an encoder of Hugging Face, for texts or images."""
    if config is not None:
        kind = {key: value for key, value in config.items() if key != "model_type"}
        settings = hugging_face().AutoConfig.for_model(config["model_type"], **kind)
    else:
        settings = _settings(name)
    text = hasattr(settings, "vocab_size") and not hasattr(settings, "num_channels")
    if not text and config is None:
        if weights == "none":
            settings.num_channels = in_channels
            if image_size is not None and hasattr(settings, "image_size"):
                settings.image_size = image_size
        else:
            check_channels(f"hf:{name}", in_channels, settings.num_channels)
            check_side(f"hf:{name}", image_size, getattr(settings, "image_size", None))
    if not text:
        check_patches(f"hf:{name}", image_size, getattr(settings, "patch_size", None))
    if weights == "none":
        model = hugging_face().AutoModel.from_config(settings, trust_remote_code=False)
    else:
        model = _trained(name, settings, weights)
    pooler = getattr(model, "pooler", None)
    if text and isinstance(pooler, nn.Module):
        model.pooler = None  # tokens are averaged instead
    width = getattr(settings, "hidden_size", None) or settings.hidden_sizes[-1]
    found = ForeignBackbone(
        TokenEncoder(model) if text else model,
        int(width),
        None if text else settings.num_channels,
    )
    if weights != "none" and not text:
        found.habits = _image_habits(name, image_size or getattr(settings, "image_size", 224))
    return found


def _settings(name: str) -> Any:
    return looked_up(hugging_face().AutoConfig.from_pretrained, name, "config.json")


def _trained(name: str, settings: Any, weights: str | os.PathLike[str]) -> Any:
    """Load a model with weights; what they lack would stay random, so it is refused."""
    auto = hugging_face().AutoModel
    options: dict[str, Any] = {"config": settings, "output_loading_info": True}
    origin = f"hf:{name}"
    with _quiet():
        if weights == "default":
            model, told = looked_up(auto.from_pretrained, name, "model.safetensors", **options)
        else:
            origin = str(weights)
            try:
                kind = type(auto.from_config(settings, trust_remote_code=False))
                model, told = kind.from_pretrained(None, state_dict=read_weights(Path(weights)), **options)
            except (RuntimeError, ValueError) as error:
                said = str(error).splitlines()[0]
                raise FileFormatError(
                    "the weights are those of another architecture", got=f"{origin}: {said}"
                ) from None
    missing = [key for key in told["missing_keys"] if "pooler" not in key]
    if missing:
        parts = [f"{len(missing)} tensors of the network are missing ({few_of(missing)})"]
        if strange := told["unexpected_keys"]:
            parts.append(f"{len(strange)} are unknown to it ({few_of(strange)})")
        raise FileFormatError(
            "the weights are those of another architecture",
            got=f"{origin}: {'; '.join(parts)}",
            expected=f"the tensors of {type(model).__name__}",
        )
    check_finite(model.state_dict(), origin)
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from telling in a table what we tell in a line."""
    logging = hugging_face().utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def usual_size(name: str) -> int | None:
    """Return the side of the images that a model's configuration names, if it does."""
    size = getattr(_settings(name), "image_size", None)
    return int(size) if isinstance(size, int) else None


def check_config(config: Any) -> None:
    """Refuse a configuration in a file that names code or other models, in any of its parts."""
    if isinstance(config, dict):
        named = {key for key in _REACHING if config.get(key)}
        named |= {
            key
            for key, value in config.items()
            if str(key).endswith("_implementation") and set("/:|") & set(str(value))  # code of the hub
        }
        if str(config.get("model_type")).startswith("timm"):
            named.add("model_type")
        if named:
            raise FileFormatError(
                "the configuration of a network names code or models outside of its file",
                got=f"{min(named)} {config[min(named)]!r:.60}",
            )
    for part in config.values() if isinstance(config, dict) else config if isinstance(config, list) else ():
        check_config(part)


@contextmanager
def offline() -> Iterator[None]:
    """Let nothing be asked of the hub."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def plain_config(model: nn.Module) -> dict[str, Any]:
    """Return the configuration as JSON can keep it, without the place that it came from or code beside it."""
    inner: Any = model.model if isinstance(model, TokenEncoder) else model
    return _without(inner.config.to_dict(), ("_name_or_path", "transformers_version", "auto_map"))


def _without(config: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(config, dict):
        return config
    return {key: _without(value, keys) for key, value in config.items() if key not in keys}


def _image_habits(name: str, size: Any) -> Habits:
    """Read what a folder says about its images; the usual half and half without it."""
    import json

    side = int(size if isinstance(size, int) else max(size))
    file = Path(name) / "preprocessor_config.json"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return Habits(tuple(told["image_mean"]), tuple(told["image_std"]), side)
    except (OSError, ValueError, KeyError, TypeError):
        return Habits(
            (0.5,) * 3, (0.5,) * 3, side, "no preprocessor_config.json: mean and std are taken as 0.5"
        )
