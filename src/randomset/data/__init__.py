"""Load data sets by name, from paths, or from data set objects."""

from randomset.data.sources import Source, load_inputs, load_source

__all__ = ["Source", "load_inputs", "load_source"]
