"""Names and paths become data sets."""

from randomset.data.sources import Source, load_inputs, load_source

__all__ = ["Source", "load_inputs", "load_source"]
