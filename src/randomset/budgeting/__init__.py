"""From features to the sets of classes that matter."""

from randomset.budgeting.alternatives import from_confusion, from_hierarchy, random_sets
from randomset.budgeting.budgeter import Budgeter
from randomset.budgeting.features import extract_features
from randomset.budgeting.knee import knee

__all__ = ["Budgeter", "extract_features", "from_confusion", "from_hierarchy", "knee", "random_sets"]
