"""The sets-first layout, whole and in blocks."""

import pytest
import torch

from randomset.belief import sets_first
from randomset.belief.sets_first import over_sets, over_sets_each, product_over_sets


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,)])
def test_batches_of_any_shape(shape):
    x = torch.rand(*shape, 4)
    torch.testing.assert_close(over_sets(lambda columns: columns.cumsum(0), x), x.cumsum(-1))
    matrix = torch.rand(3, 4)
    torch.testing.assert_close(product_over_sets(matrix, x), x @ matrix.T)


@pytest.mark.parametrize("sigmoid", [False, True])
def test_blocks_give_the_same_results(monkeypatch, sigmoid):
    x, widths = torch.randn(50, 6), []

    def function(columns):
        widths.append(columns.shape[1])
        return columns * 2, columns.sum(0, keepdim=True)

    monkeypatch.setattr(sets_first, "_BLOCK", 6 * 16)
    double, total = over_sets_each(function, x, sigmoid=sigmoid)
    assert widths == [16, 16, 16, 2]
    expected = x.sigmoid() if sigmoid else x
    torch.testing.assert_close(double, expected * 2)
    torch.testing.assert_close(total, expected.sum(-1, keepdim=True))


def test_batches_stay_whole_under_autograd(monkeypatch):
    monkeypatch.setattr(sets_first, "_BLOCK", 1)
    x = torch.rand(50, 6, requires_grad=True)
    over_sets(lambda columns: columns**2, x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
