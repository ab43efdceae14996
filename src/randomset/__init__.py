"""Random-set neural networks: classifiers that know when they do not know."""

from __future__ import annotations

import importlib
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
    from randomset import budgeting, report
    from randomset.budgeting.budgeter import Budgeter

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetOperators",
    "Budgeter",
    "RandomSet",
    "RandomSetError",
    "Validity",
    "belief_from_classes",
    "belief_from_label_masses",
    "belief_from_label_sets",
    "belief_from_mass",
    "belief_from_probabilities",
    "budgeting",
    "commonality_from_mass",
    "credal",
    "decision",
    "errors",
    "fusion",
    "mass_from_belief",
    "measures",
    "plausibility_from_mass",
    "repair_belief",
    "report",
]

# Rooms that need more than torch are opened when they are first used, so that `import randomset` stays fast.
_LATE = {
    "Budgeter": "randomset.budgeting.budgeter",
    "budgeting": "randomset.budgeting",
    "report": "randomset.report",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_LATE[name])
    return module if _LATE[name].endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
