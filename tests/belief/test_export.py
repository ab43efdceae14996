"""Everything from logits to uncertainty can be exported and compiled: ONNX, torch.export, torch.compile."""

import shutil
import warnings

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSet
from randomset.belief.operators import BudgetOperators
from tests.strategies import random_budget

BUDGETS = {"sparse": random_budget(30, 60, seed=1, max_size=4), "power set": Budget.powerset(6)}


def everything(answer):
    return (answer.mass, answer.pignistic, answer.lower, answer.upper, answer.entropy, answer.credal_width)


class Prediction(nn.Module):
    """What a deployed model computes after its last layer."""

    def __init__(self, budget):
        super().__init__()
        self.operators = BudgetOperators(budget)

    def forward(self, logits):
        return everything(RandomSet.from_logits(logits, self.operators))


def expected(logits, budget):
    return everything(RandomSet.from_logits(logits, budget))


def logits_for(budget, count, seed=0):
    return torch.randn(count, len(budget), generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_onnx_agrees_for_any_batch_size(tmp_path):
    """For a power set; tests/serving exports other budgets with their networks."""
    import onnxruntime

    budget = BUDGETS["power set"]
    path = tmp_path / "prediction.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(
            Prediction(budget).eval(),
            (logits_for(budget, 3),),
            str(path),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            verbose=False,
        )
    session = onnxruntime.InferenceSession(str(path))
    for count in (1, 7):
        logits = logits_for(budget, count, seed=count)
        found = session.run(None, {session.get_inputs()[0].name: logits.numpy()})
        for got, want in zip(found, expected(logits, budget), strict=True):
            torch.testing.assert_close(torch.from_numpy(got), want, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["sparse", "power set"])
def test_compiled_prediction(name):
    budget = BUDGETS[name]
    logits = logits_for(budget, 9)
    compiled = torch.compile(Prediction(budget), fullgraph=True)
    for got, want in zip(compiled(logits), expected(logits, budget), strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_state_dict_can_be_saved_as_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    module = Prediction(BUDGETS["sparse"])
    save_file(module.state_dict(), tmp_path / "state.safetensors")
    again = Prediction(BUDGETS["sparse"])
    state = load_file(tmp_path / "state.safetensors")
    assert state
    again.load_state_dict(state)
    logits = logits_for(BUDGETS["sparse"], 5)
    for got, want in zip(again(logits), module(logits), strict=True):
        assert torch.equal(got, want)
