"""Preparation of training: backbones, preprocessing, cached features; random state, precision, loggers."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import logging
import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from randomset import backbones
from randomset._core.files import save_tensors
from randomset.backbones.base import LibraryBackbone
from randomset.backbones.fast_cnn import SMALLEST
from randomset.backbones.inputs import InputSpec, Standardise
from randomset.backbones.weights import load_weights_into, read_weights
from randomset.budgeting.features import extract_features
from randomset.errors import RandomSetError, RandomSetWarning
from randomset.models.base import Classifier
from randomset.training.loaders import EpochLoader

__all__ = [
    "are_tokens",
    "backbone_for",
    "backbone_name",
    "check_options",
    "chosen_precision",
    "features_of",
    "frozen_features",
    "log_pretrained_inputs",
    "loggers",
    "note_inputs",
    "preprocess_for",
    "preserve_random_state",
    "quiet_lightning",
    "scaled_features",
    "spec_for",
]

logger = logging.getLogger("randomset.training")

_MAX_KEPT = 512
"""The largest number of columns that an MLP for tables has among its features: see `mlp`."""


def are_tokens(inputs: Tensor) -> bool:
    """Return whether inputs are token ids (n × T) rather than features."""
    return inputs.dim() == 2 and inputs.dtype == torch.long


def backbone_name(name: str, inputs: Tensor) -> str:
    """Resolve "auto" for inputs of this shape: an MLP, a small CNN, or a ResNet for larger images.

    >>> backbone_name("auto", torch.zeros(2, 3, 96, 128))
    'resnet18'
    """
    if name != "auto":
        return name
    if inputs.dim() == 2:
        return "mlp"
    height, width = inputs.shape[2:]
    return "small_cnn" if height == width and 4 <= height <= 64 else "resnet18"


def backbone_for(name: str, inputs: Tensor, width: int | None = None, weights: str = "none") -> nn.Module:
    """Build a backbone by name for inputs of this shape, optionally with layers of a given width.

    `weights` is "none", a file, or "default": those published for a network of another library.

    >>> backbone_for("auto", torch.zeros(2, 1, 28, 28)).spec["name"]
    'small_cnn'
    """
    name = backbone_name(name, inputs)
    if are_tokens(inputs) and not name.startswith("hf:"):
        raise RandomSetError(
            "texts require a text encoder as the backbone",
            got=name,
            remedy="Name a Hugging Face model, or a folder with one: --backbone hf:MODEL",
        )
    if ":" in name:
        return _from_library(name, inputs, width, weights)
    if weights == "default":
        raise RandomSetError(
            "no weights are published for this backbone",
            got=name,
            remedy=f"Use another library's, such as timm:{name} or torchvision:{name}, or name a file",
        )
    backbone = _ours(name, inputs, width)
    if weights != "none":
        load_weights_into(backbone, read_weights(Path(weights)), None, weights)
    return backbone


def _from_library(name: str, inputs: Tensor, width: int | None, weights: str) -> nn.Module:
    if width is not None:
        raise RandomSetError(
            "width applies to the backbones of randomset only", got=f"{name} with width {width}"
        )
    if inputs.dim() == 2 and not are_tokens(inputs):
        raise RandomSetError(
            "this backbone expects images or texts", got=f"{name} for features", expected="mlp"
        )
    options: dict[str, Any] = {"weights": weights}
    if inputs.dim() == 4:
        options |= {"in_channels": inputs.shape[1], "image_size": inputs.shape[2]}
    backbone = backbones.build(name, **options)
    if isinstance(backbone, LibraryBackbone) and (backbone.channels is None) != are_tokens(inputs):
        kind = "texts" if backbone.channels is None else "images"
        raise RandomSetError(f"this backbone expects {kind}", got=f"{name} for other inputs")
    return backbone


def _ours(name: str, inputs: Tensor, width: int | None) -> nn.Module:
    if inputs.dim() == 2:
        if name != "mlp":
            raise RandomSetError("this backbone expects images", got=f"{name} for features", expected="mlp")
        columns, widths = inputs.shape[1], (256, 256) if width is None else (width, width)
        return backbones.mlp(columns, widths, dropout=0.2, keep_inputs=columns <= _MAX_KEPT)
    channels, height, across = inputs.shape[1:]
    wide: dict[str, Any] = {} if width is None else {"width": width}
    builders: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: _ours("mlp", inputs.flatten(1)[:1], width),
        "small_cnn": lambda: backbones.small_cnn(channels, height, **wide),
        "fast_cnn": lambda: backbones.fast_cnn(channels, **wide),
        "resnet18": lambda: backbones.resnet(18, channels, **wide),
        "resnet50": lambda: backbones.resnet(50, channels, **wide),
        "wide_resnet": lambda: backbones.wide_resnet(widen=width or 10, in_channels=channels),
    }
    if name not in builders:
        expected = f"auto, {', '.join(builders)}, timm:…, torchvision:… or hf:…"
        raise RandomSetError("unknown backbone", got=name, expected=expected)
    if name == "small_cnn" and height != across:
        raise RandomSetError(
            "small_cnn takes square images", got=f"{height} × {across}", remedy="Use resnet18"
        )
    if name == "fast_cnn" and min(height, across) < SMALLEST:
        raise RandomSetError(
            "the images are too small for fast_cnn",
            got=f"{height} × {across}",
            expected=f"{SMALLEST} × {SMALLEST} pixels or more",
            remedy="Use small_cnn, or enlarge the images: --size 32",
        )
    return builders[name]()


def preprocess_for(backbone: nn.Module, inputs: Tensor, rows: Tensor | None = None) -> Standardise | None:
    """Return the preprocessing: with the statistics of the pretrained weights, or else of the data."""
    if are_tokens(inputs):
        return None
    pretrained = getattr(backbone, "pretrained_inputs", None)
    if pretrained is None:
        return Standardise.from_data(inputs, rows)
    mean, std = torch.tensor(pretrained.mean), torch.tensor(pretrained.std)
    if inputs.shape[1] != len(mean):  # grey images, repeated for a network trained on colour
        mean, std = mean.mean().expand(inputs.shape[1]), std.mean().expand(inputs.shape[1])
    return Standardise(mean, std)


def spec_for(preprocess: nn.Module | None, spec: InputSpec) -> InputSpec:
    """Return the specification for a model with this preprocessing: `Standardise` divides bytes by 255."""
    return spec.scaled() if isinstance(preprocess, Standardise) else spec


def note_inputs(network: Classifier, spec: InputSpec) -> None:
    """Record the form of the training inputs; after an earlier training, only that values have grown."""
    known = network.input_spec
    if known is None:
        network.notes |= spec.to_notes()
    elif (spec.largest or 0.0) > (known.largest or 0.0):
        network.notes["largest_input"] = spec.largest


def log_pretrained_inputs(backbone: nn.Module) -> None:
    """Log the remark on the pretrained weights of a backbone, if any."""
    if remark := getattr(getattr(backbone, "pretrained_inputs", None), "remark", ""):
        logger.info(f"Pretrained weights: {remark}.")


def features_of(
    model: nn.Module,
    inputs: Tensor,
    rows: Tensor | None = None,
    layer: str | None = None,
    progress: bool | None = None,
) -> Tensor:
    """Return a network's features (n × F), reading inputs batch by batch."""
    places = torch.arange(len(inputs)) if rows is None else rows
    batches = EpochLoader(Subset(TensorDataset(inputs), places.tolist()), 256, shuffle=False)
    batches.shared = False  # every process needs all features
    return torch.from_numpy(extract_features(model, batches, layer=layer, progress=progress)[0])


def frozen_features(
    backbone: nn.Module, preprocess: nn.Module | None, inputs: Tensor, progress: bool | None = None
) -> Tensor:
    """Return the features of a backbone that is not trained, from the cache on disk if they are there.

    The cache file is named by a checksum of the weights, the preprocessing and the data; it is in the folder
    RANDOMSET_CACHE, or in the user's cache.
    """
    model = nn.Sequential(nn.Identity() if preprocess is None else preprocess, backbone)
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "randomset"
    folder = Path(os.environ.get("RANDOMSET_CACHE") or default) / "features"
    path = folder / f"{_checksum(model, inputs)}.safetensors"
    try:
        features = load_file(path)["features"]
        if features.dim() == 2 and len(features) == len(inputs) and features.isfinite().all():
            logger.info(f"Using cached features: {path}.")
            return features
    except (OSError, SafetensorError, KeyError):
        pass
    logger.info("Computing features …")
    features = features_of(model, inputs, layer="1", progress=progress)
    if not features.isfinite().all():
        raise RandomSetError(
            "the backbone's features are not finite",
            got=f"row {int((~features.isfinite()).any(1).nonzero()[0])}",
            expected="finite inputs, in the range that the weights were trained on",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_tensors({"features": features}, path)
    except OSError as error:  # not fatal: the next run recomputes them
        logger.info(f"Could not cache the features in {folder}: {error}.")
    return features


def scaled_features(
    backbone: nn.Module, features: Tensor, rows: Tensor | None = None
) -> tuple[nn.Module, nn.Module]:
    """Append a layer that standardises the features of a frozen backbone; return the backbone and that layer.

    A head learns from standardised features within a few epochs; on the raw features of an encoder, a tenth
    as large, a random-set head is still uncertain after a hundred. A user's own module is returned unchanged.
    """
    if not isinstance(backbone, backbones.Backbone):
        return backbone, nn.Identity()
    scale = Standardise.from_data(features, rows)
    return backbones.scaled(backbone, scale).eval().requires_grad_(False), scale


def _checksum(model: nn.Module, inputs: Tensor) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(getattr(model[1], "spec", {}), sort_keys=True).encode())  # type: ignore[index]
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    digest.update(f"{tuple(inputs.shape)} {inputs.dtype}".encode())
    for part in inputs.split(4096):
        digest.update(part.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


# -- the environment -------------------------------------------------------------------------------


def loggers(folder: Path | None, given: Any) -> Any:
    """Return the user's loggers, and TensorBoard's if there is a run folder and TensorBoard is installed."""
    chosen = [] if given in (None, False) else list(given) if isinstance(given, (list, tuple)) else given
    if folder is None or given is False or not isinstance(chosen, list):
        return chosen or False
    if importlib.util.find_spec("tensorboard") is not None:
        from lightning.pytorch.loggers import TensorBoardLogger

        chosen = [*chosen, TensorBoardLogger(folder, name="tensorboard", version="")]
    return chosen or False


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the global random state afterwards."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's hardware notes, and advice that does not apply here."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        for message in (
            ".*does not have many workers.*",
            ".*in eval mode at the start of training.*",
            ".*dataloader is not resumable.*",
            ".*smaller than the logging interval.*",
            ".*checkpoint callback.*",
            ".*GPU available but not used.*",
            ".*no `val_dataloader`.*",
            ".*sync_dist=True.*",  # what is logged has been gathered
            ".*LeafSpec.*is deprecated.*",
            ".*Checkpoint directory.*exists and is not empty.*",
        ):
            warnings.filterwarnings("ignore", message)
        try:
            yield
        finally:
            log.setLevel(level)


def check_options(options: dict[str, Any], train: Any, batch_size: int | None) -> None:
    """Reject options that lightning.Trainer does not have, with a hint as to where to set them instead."""
    import lightning

    elsewhere = {
        "max_epochs": "epochs=…",
        "enable_checkpointing": "out=…",
        "default_root_dir": "out=…",
        "alpha": "loss=RandomSetLoss(budget, alpha=…)",
        "beta": "loss=RandomSetLoss(budget, beta=…)",
        "class_weights": "class_weight=…",
        "lr": "learning_rate=…",
        "optimizer": "recipe=Recipe(optimizer=…)",
        "weight_decay": "recipe=Recipe(weight_decay=…)",
        "early_stopping": "callbacks=[lightning.pytorch.callbacks.EarlyStopping(…)]",
        "num_workers": "workers=…",
    }
    known = set(inspect.signature(lightning.Trainer).parameters) - set(elsewhere)
    for name in options:
        if name not in known:
            raise RandomSetError(
                "unknown option for fit",
                got=name,
                expected=elsewhere.get(name, "an argument of fit or of lightning.Trainer"),
            )
    if batch_size is not None and isinstance(train, DataLoader):
        raise RandomSetError(
            "batch_size cannot be combined with a data loader",
            got=f"batch_size={batch_size}",
            remedy="Omit batch_size",
        )


def chosen_precision(asked: str | None, accelerator: Any) -> str:
    """Return the precision to train in, by its name in Lightning.

    None selects mixed precision where the device supports it: bfloat16 on GPUs and CPUs with native support,
    float16 on older GPUs, and float32 otherwise. On a CPU without native bfloat16, where it is many times
    slower than float32, a request for bfloat16 falls back to float32 with a warning.
    """
    on_cuda = torch.cuda.is_available() and accelerator in ("auto", "gpu", "cuda")
    if on_cuda:
        native = "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "16-mixed"
        return asked or native
    if accelerator not in ("auto", "cpu") or (accelerator == "auto" and torch.backends.mps.is_available()):
        return asked or "32-true"
    if asked is not None and "bf16" in str(asked) and not cpu_has_bfloat16():
        warnings.warn(
            f"this CPU has no native bfloat16 support, so {asked!r} would be many times slower than float32; "
            "training in float32 instead",
            RandomSetWarning,
            stacklevel=4,
        )
        return "32-true"
    return asked or ("bf16-mixed" if cpu_has_bfloat16() else "32-true")


def cpu_has_bfloat16() -> bool:
    """Return whether the CPU supports bfloat16 natively."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)
