"""Trainings that are interrupted at a stage, as by Ctrl-C or a crash."""

import contextlib
import logging

import pytest


class _Interrupted(Exception):
    pass


class _Stop(logging.Handler):
    def __init__(self, start):
        super().__init__()
        self.start = start

    def emit(self, record):
        if record.getMessage().startswith(self.start):
            raise _Interrupted


@contextlib.contextmanager
def interrupted_at(start):
    """Interrupt what runs within where it logs a line that begins with a text; fail if it never does."""
    logger = logging.getLogger("randomset.training")
    handler, level = _Stop(start), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with pytest.raises(_Interrupted):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
