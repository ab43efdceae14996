"""Imbalanced classes: weights, balanced epochs, what is refused, and the warning about rare classes."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler

import randomset as rs
from randomset import backbones
from randomset.errors import LabelError, RandomSetError, RandomSetWarning
from randomset.models import CrossEntropy, Softmax
from randomset.training import TrainConfig, train
from randomset.training.balance import checked_class_weight, class_counts, class_weight_by_index
from tests.training.conftest import network, quick

RARE, NUMBER = 0, 12
"""The class with few samples, and how many."""


@pytest.fixture(scope="module")
def imbalanced():
    """Two overlapping blobs of 200 and 12 samples to train on, and 200 of each to validate."""
    generator = torch.Generator().manual_seed(0)

    def draw(rare, common):
        labels = torch.cat((torch.zeros(rare), torch.ones(common))).long()
        return torch.randn(len(labels), 2, generator=generator) + 1.5 * labels[:, None], labels

    return draw(NUMBER, 200), draw(200, 200)


def recall(model, data):
    inputs, labels = data
    return (model.predict(inputs[labels == RARE]).labels == RARE).double().mean().item()


def small(kind):
    torch.manual_seed(0)
    backbone = backbones.mlp(2, (16,))
    return (
        Softmax(backbone, 2) if kind == "softmax" else rs.RandomSetNetwork(backbone, rs.Budget.singletons(2))
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["softmax", "rsnn"])
def test_balance_raises_the_recall_of_a_rare_class(imbalanced, kind):
    found = {}
    for name, options in {
        "none": {},
        "weights": {"class_weight": "balanced"},
        "named": {"class_weight": {"0": 200 / NUMBER}},
        "sampling": {"sampling": "balanced"},
    }.items():
        model = small(kind)
        quick(model, *imbalanced, epochs=30, batch_size=32, learning_rate=1e-2, reliability="none", **options)
        found[name] = recall(model, imbalanced[1])
    for name in ("weights", "named", "sampling"):
        assert found[name] > found["none"] + 0.15, found


@pytest.mark.slow
def test_the_plain_network_that_chooses_the_sets_is_weighted_too(imbalanced):
    inputs, labels = (torch.cat(parts) for parts in zip(*imbalanced, strict=True))
    rows, held = torch.arange(212), torch.arange(212, len(labels))
    images = inputs[:, None, :, None].expand(-1, 1, 2, 4).contiguous()
    found = []
    for weight in (None, "balanced"):
        config = TrainConfig(backbone="mlp", epochs=15, class_weight=weight, reliability="none", num_sets=0)
        result = train(config, images, labels, ("rare", "common"), rows=rows, val_rows=held, progress=False)
        data = images[held], labels[held]
        found.append([recall(result.plain, data), recall(result.model, data)])
    assert all(weighted > plain + 0.1 for plain, weighted in zip(*found, strict=True)), found


class TestWeights:
    def test_balanced_weights_are_those_of_scikit_learn(self):
        from sklearn.utils.class_weight import compute_class_weight

        labels = torch.tensor([0] * 6 + [1] * 3 + [2])
        expected = compute_class_weight("balanced", classes=np.arange(3), y=labels.numpy())
        seen = weights_in_training(labels, "balanced")
        assert seen == pytest.approx(expected[labels.numpy()])

    def test_set_valued_labels_count_for_their_classes_in_equal_shares(self):
        mask = torch.tensor([[True, False, False], [True, True, False], [False, False, True]])
        assert class_counts(mask, 3).tolist() == [1.5, 0.5, 1.0]
        assert class_counts(torch.tensor([2, -1, 0, 2]), 3).tolist() == [1, 0, 2]
        expected = torch.tensor([2 / 3, (2 / 3 + 2) / 2, 1.0])  # n / (N · n_c), averaged over the classes
        assert weights_in_training(mask, "balanced") == pytest.approx(expected)

    def test_sample_weights_are_multiplied(self):
        labels = torch.tensor([0, 1, 1])
        assert weights_in_training(labels, [1.0, 3.0], torch.tensor([1.0, 2.0, 0.5])) == [1.0, 6.0, 1.5]

    def test_class_weights_of_the_loss_give_the_same(self, digits):
        weights = [1.0 + c for c in range(10)]
        one, two = network(), network()
        quick(one, digits[0], class_weight=weights)
        quick(two, digits[0], loss=rs.RandomSetLoss(two.budget, class_weights=weights))
        for name, tensor in one.state_dict().items():
            assert torch.allclose(tensor, two.state_dict()[name], atol=1e-6), name

    def test_stored_forms(self):
        assert checked_class_weight({"a": 1, "b": np.float32(2)}) == (("a", 1.0), ("b", 2.0))
        assert checked_class_weight([["a", 1]]) == (("a", 1.0),)  # as JSON has it
        assert checked_class_weight(torch.tensor([1, 2])) == (1.0, 2.0)
        assert class_weight_by_index({"b": 3}, ("a", "b", "c")) == (1.0, 3.0, 1.0)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("even", "invalid class_weight; got 'even'"),
            ({}, "invalid class_weight"),
            ({1: 2.0}, "invalid class_weight"),
            ({"a": -1.0}, "finite and not negative; got a: -1.0"),
            ({"a": float("nan")}, "finite and not negative; got a: nan"),
            ([1.0, float("inf"), 1.0], "finite and not negative; got inf"),
            ([0, 0, 0], "all class weights are zero"),
            ([["a", 1.0], ["a", 2.0]], "duplicate class in class_weight; got a, a"),
            ([1.0, 2.0], "wrong number of weights; got 2; expected 3"),
            ({"dog": 2.0}, "unknown class in class_weight; got dog; expected one of a, b, c"),
            ({"a": 0, "b": 0, "c": 0}, "all class weights are zero"),
        ],
    )
    def test_mistakes(self, value, message):
        with pytest.raises(RandomSetError, match=message):
            class_weight_by_index(value, ("a", "b", "c"))


def weights_in_training(labels, class_weight, weight=None):
    """Return the weights that the loss is called with, in the order of the samples."""
    seen = {}

    class Watching(nn.Module):
        def forward(self, outputs, labels, weight):
            if self.training:
                seen.update(zip(outputs[:, 0].tolist(), weight.tolist(), strict=True))
            return 0 * outputs.sum()

    class Numbered(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))

        def forward(self, inputs):
            return self.factor * inputs.expand(-1, 3)

    tensors = [torch.arange(float(len(labels)))[:, None], labels, *([] if weight is None else [weight])]
    quick(Numbered(), TensorDataset(*tensors), loss=Watching(), class_weight=class_weight)
    return [seen[float(place)] for place in range(len(labels))]


class TestMistakes:
    def test_a_class_without_samples(self, digits):
        x, y = digits[0].tensors
        data = TensorDataset(x[y != 3], y[y != 3])
        for options in ({"class_weight": "balanced"}, {"sampling": "balanced"}):
            with pytest.raises(LabelError, match=r"needs training samples of every class; got none of 3"):
                quick(network(), data, **options)

    def test_balanced_twice(self, digits):
        with pytest.raises(RandomSetError, match="balanced twice"):
            quick(network(), digits[0], class_weight="balanced", sampling="balanced")
        loss = rs.RandomSetLoss(network().budget, class_weights=[1.0] * 10)
        with pytest.raises(RandomSetError, match="class weights given twice"):
            quick(network(), digits[0], class_weight="balanced", loss=loss)

    def test_balanced_sampling_needs_one_class_per_sample(self, digits):
        x, y = digits[0].tensors
        masks = TensorDataset(x, nn.functional.one_hot(y, 10).bool())
        with pytest.raises(RandomSetError, match=r"one class per sample; got set-valued labels"):
            quick(network(), masks, sampling="balanced")
        sampler = WeightedRandomSampler(torch.ones(len(x)), len(x))
        for loader in (DataLoader(digits[0], 64, sampler=sampler), DataLoader(digits[0], 64)):
            with pytest.raises(RandomSetError, match="balanced sampling needs a data set"):
                quick(network(), loader, batch_size=None, sampling="balanced")

    def test_labels_that_cannot_be_counted(self, digits):
        batches = [(x, y) for x, y in DataLoader(digits[0], 100)]
        with pytest.raises(RandomSetError, match="cannot be counted without reading"):
            quick(network(), batches, class_weight="balanced")
        assert quick(network(), batches, class_weight={"3": 2.0}).last["step"] == 8

    def test_a_plain_module_may_have_more_classes_than_there_are_labels(self, digits):
        x, y = digits[0].tensors
        data = TensorDataset(x[y < 8], y[y < 8])
        plain = nn.Linear(64, 10)
        assert quick(plain, data, loss=CrossEntropy(), class_weight=[1.0] * 10).last["loss"] > 0
        with pytest.raises(LabelError, match="unknown class in class_weight; got 8"):
            quick(plain, data, loss=CrossEntropy(), class_weight={"8": 2.0})

    def test_invalid_labels_are_reported_as_ever(self, digits):
        x, y = digits[0].tensors
        data = TensorDataset(x, y.where(y != 3, 10))
        with pytest.raises(LabelError, match="10"):
            quick(network(), data, class_weight=[1.0] * 10)

    def test_losses_without_weights(self, digits):
        plain = nn.Linear(64, 10)
        for options in ({"class_weight": "balanced"}, {"augment": "mixup"}):
            with pytest.raises(RandomSetError, match=r"does not accept sample weights.*CrossEntropy"):
                quick(plain, digits[0], loss=nn.CrossEntropyLoss(), **options)
            assert quick(plain, digits[0], loss=CrossEntropy(), **options).last["loss"] > 0

    def test_unknown_names_are_found_before_any_stage(self, digit_images, tmp_path):
        config = TrainConfig(epochs=1, class_weight={"11": 2.0})
        with pytest.raises(LabelError, match=r"unknown class in class_weight; got 11"):
            train(config, *digit_images, out=tmp_path / "run")
        assert not (tmp_path / "run" / "first").exists()


class TestWarning:
    def labels(self, *numbers):
        return torch.cat([torch.full((number,), c) for c, number in enumerate(numbers)])

    def fit(self, labels):
        data = TensorDataset(torch.randn(len(labels), 4), labels)
        torch.manual_seed(0)
        return quick(Softmax(backbones.mlp(4, (4,)), ["cat", "dog", "lynx"]), data)

    def test_rare_classes_are_named(self):
        with pytest.warns(RandomSetWarning, match=r"2 of 3 classes have fewer .*: lynx \(3\), dog \(9\)\."):
            self.fit(self.labels(100, 9, 3))
        with pytest.warns(RandomSetWarning, match=r"1 of 3 classes has fewer .*: dog \(0\)\."):
            self.fit(self.labels(100, 0, 10))

    @pytest.mark.filterwarnings("error")
    def test_small_data_sets_are_known_to_be_small(self):
        self.fit(self.labels(10, 10, 100))
        self.fit(self.labels(19, 31, 9))  # 20 each would be usual

    def test_once_for_the_whole_training(self):
        labels = self.labels(100, 60, 3)
        inputs = torch.randn(len(labels), 1, 8, 8)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(TrainConfig(epochs=1, num_sets=1, width=4), inputs, labels, ("cat", "dog", "lynx"))
        assert len([w for w in caught if "lynx (3)" in str(w.message)]) == 1

    @pytest.mark.filterwarnings("error")
    def test_few_validation_samples(self, digits):
        few = TensorDataset(*(tensor[:19] for tensor in digits[1].tensors))
        with pytest.warns(RandomSetWarning, match="calibrated on 19 validation samples, fewer than 20"):
            quick(network(), digits[0], few, reliability="none")
        quick(network(), digits[0], few, calibrated=False, reliability="none")
        quick(network(), digits[0], Subset(digits[1], range(20)))
