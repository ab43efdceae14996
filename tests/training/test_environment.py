"""Loggers and the random state around a training run."""

import random

import numpy as np
import pytest
import torch

from randomset.training.environment import loggers, preserve_random_state
from tests.training.conftest import network, quick


@pytest.mark.slow
class TestRandomState:
    def test_torchs_generator_is_left_alone(self, digits):
        model = network()
        torch.manual_seed(7)
        state = torch.get_rng_state()
        quick(model, digits[0])
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
class TestLoggers:
    def test_a_logger_of_the_user(self, digits, tmp_path):
        from lightning.pytorch.loggers import CSVLogger

        quick(network(), *digits, logger=CSVLogger(tmp_path, name="mine", version=""), out=tmp_path / "run")
        assert "val_accuracy" in (tmp_path / "mine" / "metrics.csv").read_text()
        assert "val_accuracy" in (tmp_path / "run" / "metrics.csv").read_text()

    def test_none_without_a_folder(self):
        assert loggers(None, None) is False
        assert loggers(None, False) is False

    def test_none_at_all(self, tmp_path):
        assert loggers(tmp_path, False) is False


def test_every_global_generator_is_restored():
    draws = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        with preserve_random_state():
            if draws:
                random.random()
                np.random.rand()  # noqa: NPY002
                torch.rand(3)
        draws.append((random.random(), np.random.rand(), torch.rand(()).item()))  # noqa: NPY002
    assert draws[0] == draws[1]
