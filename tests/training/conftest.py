"""Small networks, data and runs, which the tests of training share."""

import contextlib
import logging

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import randomset as rs
from randomset import backbones

BUDGET = rs.Budget.from_sets([{3, 8}, {4, 9}, {1, 7, 8}], 10)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache for features of frozen backbones."""
    monkeypatch.setenv("RANDOMSET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def network(dropout=0.0):
    torch.manual_seed(0)
    return rs.RandomSetNetwork(backbones.mlp(64, (32,), dropout=dropout), BUDGET)


def quick(model, *data, **options):
    """Train for an epoch, if nothing else is asked for."""
    return rs.fit(model, *data, **{"epochs": 1, "batch_size": 64, "progress": False, **options})


@pytest.fixture(scope="session")
def small_digits(digits):
    """200 digits to train on, and 100 to validate."""
    x, y = digits[0].tensors
    return TensorDataset(x[:200], y[:200]), TensorDataset(x[200:300], y[200:300])


def small_network(budget=BUDGET):
    torch.manual_seed(0)
    return rs.RandomSetNetwork(backbones.mlp(64, (16,), dropout=0.3), budget)


def train_small(model, *data, **options):
    """Train for three epochs of four batches."""
    size = None if isinstance(data[0], DataLoader) else 64
    return rs.fit(model, *data, **{"epochs": 3, "batch_size": size, "progress": False, **options})


def run_checkpoints():
    """Import late: the class needs Lightning, and fast tests collect these files."""
    from randomset.training.checkpoints import RunCheckpoints

    return RunCheckpoints


def assert_same(one, two):
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name


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
