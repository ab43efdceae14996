"""Training on Lightning: `fit` for any module, `train` for the whole pipeline, recipes and checkpoints."""

from randomset.training.config import TrainConfig
from randomset.training.fitting import fit
from randomset.training.pipeline import TrainResult, train
from randomset.training.recipe import Recipe
from randomset.training.resuming import FitReport, TrainingStopped

__all__ = ["FitReport", "Recipe", "TrainConfig", "TrainResult", "TrainingStopped", "fit", "train"]
