"""Choose a budget: the sets of classes that matter."""

from typing import TYPE_CHECKING, Any

from randomset.budgeting.alternatives import from_confusion, from_hierarchy, random_sets
from randomset.budgeting.features import extract_features
from randomset.budgeting.overlap import knee

if TYPE_CHECKING:
    from randomset.budgeting.budgeter import Budgeter

__all__ = ["Budgeter", "extract_features", "from_confusion", "from_hierarchy", "knee", "random_sets"]


def __getattr__(name: str) -> Any:
    if name != "Budgeter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from randomset.budgeting.budgeter import Budgeter  # scikit-learn takes a second to import

    return Budgeter
