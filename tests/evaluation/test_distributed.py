"""evaluate() on several devices: the same numbers as on one."""

import pytest
import torch
from torch.utils.data import TensorDataset

from randomset import backbones
from randomset.errors import RandomSetError
from randomset.evaluation import evaluate
from randomset.models import Ensemble, Softmax
from tests.evaluation.conftest import KINDS, TEST, assert_alike, network, points


def softmax(seed=0):
    torch.manual_seed(seed)
    return Softmax(backbones.mlp(2, (8,)), 3).eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [network, softmax, lambda: Ensemble([softmax(0), softmax(1)])],
    ids=["rsnn", "softmax", "ensemble"],
)
def test_two_processes_give_the_same_numbers_as_one(make):
    model, data = make(), TensorDataset(*points(101))
    one = evaluate(model, data)
    two = evaluate(model, data, devices=2, batch_size=16)
    for name, score in one.predictions["test"].scores.items():
        assert torch.allclose(score, two.predictions["test"].scores[name], atol=1e-6), name
    assert torch.equal(one.labels["test"], two.labels["test"])
    assert_alike(two["test"], one["test"])


def test_unsupported_on_two_devices():
    with pytest.raises(RandomSetError, match="support only one device; got devices=2"):
        evaluate(network(), TEST, devices=2, timing=True)
    with pytest.raises(RandomSetError, match="cannot distribute test over devices"):
        evaluate(network(), KINDS["batches"](), devices=2)
