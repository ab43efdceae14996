"""Networks that return features: a few of our own, and timm, torchvision and Hugging Face models by name."""

from randomset.backbones.base import Backbone, mlp, resnet, small_cnn, wide_resnet
from randomset.backbones.inputs import Standardise
from randomset.backbones.registry import build, names, scaled

__all__ = ["Backbone", "Standardise", "build", "mlp", "names", "resnet", "scaled", "small_cnn", "wide_resnet"]
