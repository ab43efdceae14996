"""Networks that return features: a few of our own, and timm, torchvision and Hugging Face models by name."""

from randomset.backbones.base import Backbone, mlp, resnet, small_cnn, wide_resnet
from randomset.backbones.fast_cnn import Whitening, fast_cnn, whiten
from randomset.backbones.inputs import Standardise
from randomset.backbones.registry import build, mirrored, names, scaled

__all__ = [
    "Backbone",
    "Standardise",
    "Whitening",
    "build",
    "fast_cnn",
    "mirrored",
    "mlp",
    "names",
    "resnet",
    "scaled",
    "small_cnn",
    "whiten",
    "wide_resnet",
]
