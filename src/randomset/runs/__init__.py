"""Run folders: `Run` is one of them, `RunStore` many."""

from randomset.runs.data import HeldOut, own_data
from randomset.runs.inputs import NetworkInputs
from randomset.runs.run import Run
from randomset.runs.store import RunStore

__all__ = ["HeldOut", "NetworkInputs", "Run", "RunStore", "own_data"]
