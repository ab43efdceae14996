"""Run folders: made from settings, and read back with the data that they were made from."""

from randomset.runs.inputs import NetworkInputs, own_data
from randomset.runs.making import train_run

__all__ = ["NetworkInputs", "own_data", "train_run"]
