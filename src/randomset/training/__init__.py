"""Training on Lightning: `fit`, recipes, checkpoints and calibration."""

from randomset.training.calibration import CalibrationReport, calibrate
from randomset.training.fitting import FitReport, TrainingStopped, fit
from randomset.training.recipe import Recipe

__all__ = ["CalibrationReport", "FitReport", "Recipe", "TrainingStopped", "calibrate", "fit"]
