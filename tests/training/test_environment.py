"""Loggers and the random state around a training run."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from randomset.errors import RandomSetWarning
from randomset.training import environment
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


class TestPrecision:
    def test_no_bfloat16_where_the_cpu_has_none(self, monkeypatch):
        monkeypatch.setattr(environment, "cpu_has_bfloat16", lambda: False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert environment.chosen_precision(None, "cpu") == "32-true"
        with pytest.warns(RandomSetWarning, match="no native bfloat16"):
            assert environment.chosen_precision("bf16-mixed", "cpu") == "32-true"
        assert environment.chosen_precision("64-true", "cpu") == "64-true"
        monkeypatch.setattr(environment, "cpu_has_bfloat16", lambda: True)
        assert environment.chosen_precision(None, "cpu") == "bf16-mixed"
        assert environment.chosen_precision("bf16-mixed", "cpu") == "bf16-mixed"

    def test_old_and_new_gpus(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        for new, expected in ((True, "bf16-mixed"), (False, "16-mixed")):
            monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda new=new, **_: new)
            assert environment.chosen_precision(None, "auto") == expected

    def test_mixed_precision_trains(self, digits, monkeypatch):
        model, seen = network(), set()
        layer = next(part for part in model.backbone.modules() if isinstance(part, nn.Linear))
        layer.register_forward_hook(lambda part, _, output: seen.add(output.dtype) if part.training else None)
        monkeypatch.setattr(environment, "cpu_has_bfloat16", lambda: True)
        report = quick(model, *digits, precision="bf16-mixed", limit_train_batches=3)
        assert torch.tensor(report.last["loss"]).isfinite()
        assert seen == {torch.bfloat16}
        assert layer.weight.dtype == torch.float32
