"""Predictions in, numbers out: accuracy, calibration, unknown inputs, conformal sets, abstention."""

from randomset.evaluation.predictor import (
    Prediction,
    Predictor,
    as_predictor,
    random_set_predictor,
    softmax_predictor,
)

__all__ = ["Prediction", "Predictor", "as_predictor", "random_set_predictor", "softmax_predictor"]
