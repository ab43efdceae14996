"""Run folders: `Run` for a single run, `RunStore` for a collection."""

from randomset.runs.data import HeldOut, NetworkInputs, own_data
from randomset.runs.run import Run
from randomset.runs.store import RunStore

__all__ = ["HeldOut", "NetworkInputs", "Run", "RunStore", "own_data"]
