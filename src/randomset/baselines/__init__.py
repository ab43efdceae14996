"""The methods that random-set networks are compared with: each a model and a loss."""

from randomset.baselines.baseline import Baseline
from randomset.baselines.ensemble import Ensemble
from randomset.baselines.epinet import Epinet
from randomset.baselines.evidential import Evidential
from randomset.baselines.fsvi import FSVI
from randomset.baselines.laplace_bridge import LaplaceBridge
from randomset.baselines.softmax import MCDropout, Softmax

__all__ = [
    "FSVI",
    "Baseline",
    "Ensemble",
    "Epinet",
    "Evidential",
    "LaplaceBridge",
    "MCDropout",
    "Softmax",
]
