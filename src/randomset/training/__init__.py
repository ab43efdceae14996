"""Training on Lightning: `fit`, recipes, checkpoints and calibration."""

from randomset.training.calibration import CalibrationReport, calibrate
from randomset.training.fitting import fit
from randomset.training.recipe import Recipe
from randomset.training.report import FitReport, TrainingStopped

__all__ = ["CalibrationReport", "FitReport", "Recipe", "TrainingStopped", "calibrate", "fit"]
