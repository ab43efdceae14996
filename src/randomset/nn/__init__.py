"""Torch modules: the head, the loss, the network around any backbone, and a few backbones."""

from randomset.nn import backbones
from randomset.nn.calibration import BeliefTemperature, PignisticTemperature
from randomset.nn.head import RandomSetHead
from randomset.nn.loss import NormalisedMassLoss, RandomSetLoss
from randomset.nn.network import RandomSetNetwork
from randomset.nn.preprocessing import Standardise

__all__ = [
    "BeliefTemperature",
    "NormalisedMassLoss",
    "PignisticTemperature",
    "RandomSetHead",
    "RandomSetLoss",
    "RandomSetNetwork",
    "Standardise",
    "backbones",
]
