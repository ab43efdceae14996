"""The precision of training: mixed where the device has it."""

import pytest
import torch
from torch import nn

from randomset.errors import RandomSetWarning
from randomset.training import precision
from tests.training.conftest import network, quick


class TestPrecision:
    def test_no_bfloat16_where_the_cpu_has_none(self, monkeypatch):
        monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert precision.chosen_precision(None, "cpu") == "32-true"
        with pytest.warns(RandomSetWarning, match="no native bfloat16"):
            assert precision.chosen_precision("bf16-mixed", "cpu") == "32-true"
        assert precision.chosen_precision("64-true", "cpu") == "64-true"
        monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: True)
        assert precision.chosen_precision(None, "cpu") == "bf16-mixed"
        assert precision.chosen_precision("bf16-mixed", "cpu") == "bf16-mixed"

    def test_old_and_new_gpus(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        for new, expected in ((True, "bf16-mixed"), (False, "16-mixed")):
            monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda new=new, **_: new)
            assert precision.chosen_precision(None, "auto") == expected

    def test_mixed_precision_trains(self, digits, monkeypatch):
        model, seen = network(), set()
        layer = next(part for part in model.backbone.modules() if isinstance(part, nn.Linear))
        layer.register_forward_hook(lambda part, _, output: seen.add(output.dtype) if part.training else None)
        monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: True)
        report = quick(model, *digits, precision="bf16-mixed", limit_train_batches=3)
        assert torch.tensor(report.last["loss"]).isfinite()
        assert seen == {torch.bfloat16}
        assert layer.weight.dtype == torch.float32
