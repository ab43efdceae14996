"""Classifiers: random-set networks and baselines, with one common interface."""

from randomset.models.base import Classifier
from randomset.models.calibration import BeliefTemperature, PignisticTemperature, SoftmaxTemperature
from randomset.models.cross_entropy import CrossEntropy
from randomset.models.ensemble import Ensemble
from randomset.models.epinet import Epinet
from randomset.models.evidential import Evidential
from randomset.models.fsvi import FSVI
from randomset.models.head import RandomSetHead
from randomset.models.laplace_bridge import LaplaceBridge
from randomset.models.loss import NormalisedMassLoss, RandomSetLoss
from randomset.models.prediction import Prediction
from randomset.models.random_set import RandomSetNetwork
from randomset.models.random_set_ensemble import RandomSetEnsemble
from randomset.models.reliability import Reliability
from randomset.models.reliability_fitting import ReliabilityReport, fit_reliability
from randomset.models.softmax import MCDropout, Softmax, TemperatureScaling
from randomset.models.storage import classifier_class, load, methods, register
from randomset.models.temperature import CalibrationReport, calibrate
from randomset.models.wrapped import WrappedClassifier
from randomset.models.wrapping import wrap

__all__ = [
    "FSVI",
    "BeliefTemperature",
    "CalibrationReport",
    "Classifier",
    "CrossEntropy",
    "Ensemble",
    "Epinet",
    "Evidential",
    "LaplaceBridge",
    "MCDropout",
    "NormalisedMassLoss",
    "PignisticTemperature",
    "Prediction",
    "RandomSetEnsemble",
    "RandomSetHead",
    "RandomSetLoss",
    "RandomSetNetwork",
    "Reliability",
    "ReliabilityReport",
    "Softmax",
    "SoftmaxTemperature",
    "TemperatureScaling",
    "WrappedClassifier",
    "calibrate",
    "classifier_class",
    "fit_reliability",
    "load",
    "methods",
    "register",
    "wrap",
]
