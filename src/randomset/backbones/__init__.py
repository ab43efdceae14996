"""Networks that yield features: a few of ours, and those of timm, torchvision and Hugging Face by name."""

from randomset.backbones.architectures import (
    Backbone,
    build,
    mlp,
    names,
    resnet,
    scaled,
    small_cnn,
    wide_resnet,
)
from randomset.backbones.preprocessing import Standardise

__all__ = [
    "Backbone",
    "Standardise",
    "build",
    "mlp",
    "names",
    "resnet",
    "scaled",
    "small_cnn",
    "wide_resnet",
]
