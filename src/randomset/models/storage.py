"""Models by name and in files: the registry of methods, and self-describing safetensors files.

The description in a file is not trusted: it may claim any class, size or network. Where possible, backbones
are first built on the meta device, and they are never larger than the weights in the same file.
"""

from __future__ import annotations

import copy
import json
import platform
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from operator import mul
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

import randomset
from randomset import backbones
from randomset._core.files import check_version, expanded, save_tensors
from randomset.backbones import Standardise
from randomset.backbones.registry import build_limits, check_spec
from randomset.backbones.surgery import replace_with_identity
from randomset.errors import FileFormatError, RandomSetError, WriteError
from randomset.models.base import Classifier

__all__ = ["WEIGHTS", "Builder", "classifier_class", "load", "methods", "register", "save"]

_CLASSES: dict[str, type[Classifier]] = {}
_C = TypeVar("_C", bound="type[Classifier]")


def register(name: str) -> Callable[[_C], _C]:
    """Register a subclass of `Classifier` under a method name.

    >>> from randomset.models import Softmax
    >>> @register("wide-softmax")
    ... class WideSoftmax(Softmax):
    ...     pass
    >>> WideSoftmax.method, classifier_class("wide-softmax") is WideSoftmax
    ('wide-softmax', True)
    >>> del _CLASSES["wide-softmax"]
    """

    def add(cls: _C) -> _C:
        known = _CLASSES.get(name)
        if known is not None and known.__module__.startswith("randomset.") and known.__name__ != cls.__name__:
            raise RandomSetError(
                "this method name is already registered",
                got=name,
                expected=f"a name other than {', '.join(methods())}",
            )
        _CLASSES[name] = cls
        cls.method = name
        return cls

    return add


def methods() -> tuple[str, ...]:
    """Return the names of all methods, the random-set network's first."""
    return tuple(sorted(_CLASSES, key=lambda name: (name != "rsnn", name)))


def classifier_class(name: str) -> type[Classifier]:
    """Return the class registered under a method name."""
    if name not in _CLASSES:
        raise RandomSetError(
            "unknown method",
            got=name,
            expected=f"one of {', '.join(methods())}",
            remedy="A method of your own must first be registered: import the module that defines it",
        )
    return _CLASSES[name]


# -- files -----------------------------------------------------------------------------------------


WEIGHTS = "model.safetensors"
_FORMAT, _VERSION = "randomset.model", 1


def save(model: Classifier, folder: str | Path) -> Path:
    """Write a model into a folder; an existing file is replaced only once the new one is complete."""
    if not model.portable:
        raise RandomSetError(
            "a model with a scikit-learn estimator cannot be saved without pickle",
            got=type(model).__name__,
            remedy="Save the estimator by its own means, and wrap it again after loading it",
        )
    folder = expanded(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError("cannot create the folder", folder, error) from None
    versions = {"randomset": randomset.__version__, "torch": torch.__version__}
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "model": model.description(),
        "notes": model.notes,
        "versions": {**versions, "python": platform.python_version()},
    }
    save_tensors(model.state_dict(), folder / WEIGHTS, {"model": json.dumps(header, ensure_ascii=False)})
    return folder


def load(
    folder: str | Path, backbone: nn.Module | None = None, preprocess: nn.Module | None = None
) -> Classifier:
    """Read a model of any class from a folder, on the CPU and in evaluation mode."""
    folder = expanded(folder)
    path = folder / WEIGHTS if folder.is_dir() else folder
    if not path.is_file():
        raise FileFormatError(
            "no model found",
            got=str(folder),
            expected=f"a folder with {WEIGHTS}, written by `save` or `randomset train`",
        )
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileFormatError("the file is damaged, or not safetensors", got=f"{path}: {error}") from None
    header = _header(metadata, path)
    builder = Builder(state, backbone, preprocess)
    try:
        description = _translated(header, state)
        builder.check(description)
        model = builder.model(description)
        model.notes = dict(header["notes"])
    except RandomSetError:
        raise
    except Exception as error:  # torch and other libraries raise anything for a wrong description
        raise FileFormatError("cannot build the model in the file", got=f"{path}: {error!r:.200}") from None
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise FileFormatError(
            "the weights do not fit the model" + (" with this backbone" if backbone is not None else ""),
            got=f"{path}: {str(error).splitlines()[-1].strip()}",
            remedy="Pass a backbone of the architecture that was saved" if backbone is not None else "",
        ) from None
    return model.eval()


class Builder:
    """Builds models from the descriptions in a file, with a user's backbone and preprocessing if given."""

    def __init__(
        self,
        state: Mapping[str, Tensor],
        backbone: nn.Module | None = None,
        preprocess: nn.Module | None = None,
    ) -> None:
        self.state = dict(state)
        self._backbone, self._preprocess = backbone, preprocess

    def model(self, description: dict[str, Any]) -> Classifier:
        """Build a model with untrained weights."""
        model = classifier_class(description["method"]).from_description(description, self)
        model.replaced_layer = description.get("replaced_layer")
        return model

    def backbone(self, description: dict[str, Any]) -> nn.Module:
        """Return the user's backbone, or build the one that is described."""
        backbone, layer = self._backbone, description.get("replaced_layer")
        if backbone is None:
            spec = description["backbone"]
            if spec is None:
                raise RandomSetError(
                    "the model's backbone is not one of randomset.backbones",
                    got=str(description.get("backbone_class")),
                    remedy="Build it and pass it: load(folder, backbone=…)",
                )
            return self._built(spec)
        if layer is not None and isinstance(dict(backbone.named_modules()).get(layer), nn.Linear):
            backbone = copy.deepcopy(backbone)
            replace_with_identity(backbone, layer)
        return backbone

    def preprocess(self, description: dict[str, Any]) -> nn.Module | None:
        """Return the user's preprocessing, or an empty `Standardise` to load the weights into."""
        kind, channels = description.get("preprocess"), description.get("channels")
        if self._preprocess is not None or kind is None:
            return self._preprocess
        if kind != "Standardise" or channels is None:
            raise RandomSetError(
                "the model's preprocessing is not one of randomset.backbones",
                got=str(kind),
                remedy="Build it and pass it: load(folder, preprocess=…)",
            )
        return Standardise(torch.zeros(channels), torch.ones(channels))

    def check(self, description: dict[str, Any]) -> None:
        """Reject a description that does not match the weights, before allocating memory."""
        cls = classifier_class(description["method"])
        if self._backbone is not None or not cls.builds_on_meta or _names_library(description):
            return
        with torch.device("meta"):
            sketch = self.model(description).state_dict()
        shapes, stored = ({name: t.shape for name, t in part.items()} for part in (sketch, self.state))
        if wrong := [name for name in {**shapes, **stored} if shapes.get(name) != stored.get(name)]:
            raise FileFormatError("the description of the model does not match its weights", got=wrong[0])

    def check_widths(self, widths: list[int]) -> None:
        """Reject layers of these widths if the file has fewer weights."""
        available = sum(tensor.numel() for tensor in self.state.values())
        if not all(type(width) is int for width in widths) or sum(map(mul, widths, widths[1:])) > available:
            raise FileFormatError(
                "the description of the model does not match its weights", got=f"layers of {widths!r:.80}"
            )

    def _built(self, spec: dict[str, Any]) -> nn.Module:
        check_spec(spec)
        names = backbones.names(spec)
        with build_limits(self.state) if any(":" in name for name in names) else nullcontext():
            if not any(name.startswith(("timm:", "torchvision:")) for name in names):
                with torch.device("meta"):
                    sketch = backbones.build(spec["name"], **spec["options"])
                self.check_widths([sum(p.numel() for p in sketch.parameters()), 1])
            return backbones.build(spec["name"], **spec["options"])


def _names_library(description: dict[str, Any]) -> bool:
    """Return whether the backbone is another library's, which cannot be built on the meta device."""
    parts = description.get("members") or ([description["network"]] if "network" in description else [])
    if parts:
        return any(map(_names_library, parts))
    return any(":" in name for name in backbones.names(description.get("backbone")))


# -- headers of this and earlier versions -------------------------------------------------------------


def _header(metadata: Mapping[str, str], path: Path) -> dict[str, Any]:
    """Parse the header, which earlier versions called "network" or "rival"."""
    key = next((key for key in ("model", *_EARLIER) if key in metadata), "")
    try:
        header = json.loads(metadata.get(key, "null"))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != _EARLIER.get(key, _FORMAT):
        raise FileFormatError(
            "the file does not hold a model of randomset",
            got=str(path),
            expected="a file written by Classifier.save or randomset train",
        )
    check_version(header.get("version"), _VERSION, "the model", path)
    return header


_EARLIER = {"network": "randomset.network", "rival": "randomset.rival"}


def _translated(header: dict[str, Any], state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the description in a header, translated from those of earlier versions."""
    if header["format"] == "randomset.rival":
        return _from_baseline(header["model"])
    if header["format"] == "randomset.network":
        head, mean = header["head"], state.get("preprocess.mean")
        same = ("backbone", "backbone_class", "replaced_layer", "preprocess", "frozen", "budget")
        return {
            **{name: header[name] for name in (*same, "calibration")},
            "method": "rsnn",
            "in_features": head["in_features"],
            "channels": None if mean is None else len(mean),
            "options": {"hidden": head["hidden"], "dropout": head["dropout"]},
        }
    return header["model"]


def _from_baseline(model: dict[str, Any]) -> dict[str, Any]:
    description = {"options": {}, **model}
    if "members" in model:
        description["members"] = [_from_baseline(member) for member in model["members"]]
    elif "network" in model:
        description["network"] = _from_baseline(model["network"])
    else:
        description["preprocess"] = None if model["channels"] is None else "Standardise"
    return description
