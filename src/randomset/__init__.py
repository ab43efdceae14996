"""Random-set neural networks: classifiers that know when they do not know."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from randomset import belief, errors
from randomset.belief import credal, decision, fusion, measures
from randomset.belief.budget import Budget
from randomset.belief.random_set import RandomSet
from randomset.errors import RandomSetError

if TYPE_CHECKING:
    from randomset import backbones, budgeting, data, evaluation, models, report, runs, training
    from randomset.budgeting.budgeter import Budgeter
    from randomset.evaluation import evaluate
    from randomset.models import (
        Classifier,
        NormalisedMassLoss,
        Prediction,
        RandomSetEnsemble,
        RandomSetHead,
        RandomSetLoss,
        RandomSetNetwork,
        wrap,
    )
    from randomset.models.temperature import calibrate
    from randomset.runs import Run, RunStore
    from randomset.sklearn import RandomSetClassifier
    from randomset.training import Recipe, fit

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Budgeter",
    "Classifier",
    "NormalisedMassLoss",
    "Prediction",
    "RandomSet",
    "RandomSetClassifier",
    "RandomSetEnsemble",
    "RandomSetError",
    "RandomSetHead",
    "RandomSetLoss",
    "RandomSetNetwork",
    "Recipe",
    "Run",
    "RunStore",
    "backbones",
    "belief",
    "budgeting",
    "calibrate",
    "credal",
    "data",
    "decision",
    "errors",
    "evaluate",
    "evaluation",
    "fit",
    "fusion",
    "measures",
    "models",
    "report",
    "runs",
    "training",
    "wrap",
]

# Subpackages that need more than torch are imported on first use, so that `import randomset` stays fast.
_LAZY_SUBPACKAGES = ("backbones", "budgeting", "data", "evaluation", "models", "report", "runs", "training")
_LAZY_NAMES = {
    "Budgeter": "budgeting",
    "Classifier": "models",
    "NormalisedMassLoss": "models",
    "Prediction": "models",
    "RandomSetClassifier": "sklearn",
    "RandomSetEnsemble": "models",
    "RandomSetHead": "models",
    "RandomSetLoss": "models",
    "RandomSetNetwork": "models",
    "Recipe": "training",
    "Run": "runs",
    "RunStore": "runs",
    "calibrate": "models",
    "evaluate": "evaluation",
    "fit": "training",
    "wrap": "models",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the user configures logging


def __getattr__(name: str) -> Any:
    if name in _LAZY_SUBPACKAGES:
        return importlib.import_module(f"randomset.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(f"randomset.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
