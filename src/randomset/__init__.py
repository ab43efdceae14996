"""Random-set neural networks: classifiers that know when they do not know."""

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

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetOperators",
    "RandomSet",
    "RandomSetError",
    "Validity",
    "belief_from_classes",
    "belief_from_label_masses",
    "belief_from_label_sets",
    "belief_from_mass",
    "belief_from_probabilities",
    "commonality_from_mass",
    "credal",
    "decision",
    "errors",
    "fusion",
    "mass_from_belief",
    "measures",
    "plausibility_from_mass",
    "repair_belief",
]
