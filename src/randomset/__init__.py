"""Random-set neural networks: classifiers that know when they do not know."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from randomset import errors
from randomset.belief import credal, decision, fusion, measures
from randomset.belief.budget import Budget
from randomset.belief.labels import (
    belief_from_classes,
    belief_from_label_masses,
    belief_from_label_sets,
    belief_from_probabilities,
)
from randomset.belief.operators import BudgetOperators
from randomset.belief.random_set import RandomSet
from randomset.belief.repair import Validity, repair_belief
from randomset.belief.transforms import (
    belief_from_mass,
    commonality_from_mass,
    mass_from_belief,
    plausibility_from_mass,
)
from randomset.errors import RandomSetError

if TYPE_CHECKING:
    from randomset import backbones, budgeting, data, evaluation, models, report, runs, training
    from randomset.budgeting.budgeter import Budgeter
    from randomset.models import (
        Classifier,
        NormalisedMassLoss,
        Prediction,
        RandomSetHead,
        RandomSetLoss,
        RandomSetNetwork,
    )
    from randomset.models.temperature import calibrate
    from randomset.runs import Run, RunStore
    from randomset.sklearn import RandomSetClassifier
    from randomset.training import Recipe, fit

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetOperators",
    "Budgeter",
    "Classifier",
    "NormalisedMassLoss",
    "Prediction",
    "RandomSet",
    "RandomSetClassifier",
    "RandomSetError",
    "RandomSetHead",
    "RandomSetLoss",
    "RandomSetNetwork",
    "Recipe",
    "Run",
    "RunStore",
    "Validity",
    "backbones",
    "belief_from_classes",
    "belief_from_label_masses",
    "belief_from_label_sets",
    "belief_from_mass",
    "belief_from_probabilities",
    "budgeting",
    "calibrate",
    "commonality_from_mass",
    "credal",
    "data",
    "decision",
    "errors",
    "evaluation",
    "fit",
    "fusion",
    "mass_from_belief",
    "measures",
    "models",
    "plausibility_from_mass",
    "repair_belief",
    "report",
    "runs",
    "training",
]

# Rooms that need more than torch are opened when they are first used, so that `import randomset` stays fast.
_LATE = {
    "Budgeter": "randomset.budgeting.budgeter",
    "Classifier": "randomset.models",
    "NormalisedMassLoss": "randomset.models",
    "Prediction": "randomset.models",
    "RandomSetClassifier": "randomset.sklearn",
    "RandomSetHead": "randomset.models",
    "RandomSetLoss": "randomset.models",
    "RandomSetNetwork": "randomset.models",
    "Recipe": "randomset.training",
    "Run": "randomset.runs",
    "RunStore": "randomset.runs",
    "backbones": "randomset.backbones",
    "budgeting": "randomset.budgeting",
    "calibrate": "randomset.models",
    "data": "randomset.data",
    "evaluation": "randomset.evaluation",
    "fit": "randomset.training",
    "models": "randomset.models",
    "report": "randomset.report",
    "runs": "randomset.runs",
    "training": "randomset.training",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the user configures logging


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_LATE[name])
    return module if _LATE[name].endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
