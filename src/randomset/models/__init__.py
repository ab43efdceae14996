"""Classifiers: random-set networks and the methods that they are compared with, all of one family."""

from randomset.models.base import Baseline
from randomset.models.calibration import BeliefTemperature, PignisticTemperature
from randomset.models.ensemble import Ensemble
from randomset.models.epinet import Epinet
from randomset.models.evidential import Evidential
from randomset.models.fsvi import FSVI
from randomset.models.head import RandomSetHead
from randomset.models.laplace_bridge import LaplaceBridge
from randomset.models.loss import NormalisedMassLoss, RandomSetLoss
from randomset.models.random_set import RandomSetNetwork
from randomset.models.softmax import MCDropout, Softmax

__all__ = [
    "FSVI",
    "Baseline",
    "BeliefTemperature",
    "Ensemble",
    "Epinet",
    "Evidential",
    "LaplaceBridge",
    "MCDropout",
    "NormalisedMassLoss",
    "PignisticTemperature",
    "RandomSetHead",
    "RandomSetLoss",
    "RandomSetNetwork",
    "Softmax",
]
