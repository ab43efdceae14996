"""Losses with sample weights, of every model that is trained by one."""

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetNetwork
from randomset.models import FSVI, CrossEntropy, Epinet, Evidential, MCDropout, Softmax
from randomset.models.cross_entropy import weighted_mean


def models():
    torch.manual_seed(0)
    backbone = nn.Linear(4, 6)
    yield RandomSetNetwork(backbone, Budget.from_sets([{0, 1}], 3))
    for kind in (Softmax, MCDropout, Evidential, Epinet):
        yield kind(backbone, 3)
    yield FSVI(backbone, 3, num_train=8)


@pytest.mark.parametrize("model", list(models()), ids=lambda model: type(model).__name__)
def test_weights_of_zero_and_one_select_samples(model):
    loss, labels = model.default_loss(), torch.tensor([0, 1, 2, 0, 1, 2])
    model.eval()
    outputs = model(torch.randn(6, 4))
    some = torch.tensor([1.0, 0, 1, 0, 0, 1])
    expected = loss(outputs[some > 0], labels[some > 0])
    assert torch.allclose(loss(outputs, labels, some), expected)
    assert torch.allclose(loss(outputs, labels, 7 * some), expected)  # a mean: the scale does not matter
    assert torch.allclose(loss(outputs, labels, torch.ones(6)), loss(outputs, labels))


class TestCrossEntropy:
    logits, labels = (
        torch.randn(5, 3, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 1, 2, 2, 0]),
    )

    def test_class_weights_as_sample_weights_are_torchs(self):
        by_class = torch.tensor([1.0, 2.0, 5.0])
        expected = nn.CrossEntropyLoss(by_class)(self.logits, self.labels)
        assert torch.allclose(CrossEntropy()(self.logits, self.labels, by_class[self.labels]), expected)

    def test_ignored_labels_have_no_weight(self):
        labels, weight = torch.tensor([0, -100, 2, 2, -100]), torch.tensor([1.0, 9.0, 2.0, 1.0, 9.0])
        used = labels >= 0
        expected = CrossEntropy()(self.logits[used], labels[used], weight[used])
        assert torch.allclose(CrossEntropy()(self.logits, labels, weight), expected)

    def test_processes_divide_by_their_common_weight(self, monkeypatch):
        """The mean of both processes' losses is the loss of the whole batch."""
        each, weight = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 1.0, 5.0, 3.0])
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
        monkeypatch.setattr(torch.distributed, "all_reduce", lambda total: total.fill_(10.0))
        parts = [weighted_mean(each[half], weight[half]) for half in (slice(0, 2), slice(2, 4))]
        assert sum(parts).item() / 2 == pytest.approx((1 + 2 + 15 + 12) / 10)
