"""Metrics: accuracy, calibration, out-of-distribution detection, conformal and selective prediction."""

from randomset.evaluation.evaluator import evaluate
from randomset.evaluation.predictor import (
    Prediction,
    Predictor,
    as_predictor,
    random_set_predictor,
    softmax_predictor,
)
from randomset.evaluation.result import Evaluation
from randomset.models.prediction import Threshold

__all__ = [
    "Evaluation",
    "Prediction",
    "Predictor",
    "Threshold",
    "as_predictor",
    "evaluate",
    "random_set_predictor",
    "softmax_predictor",
]
