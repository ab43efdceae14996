"""Sources: kinds of labels, splits, and alignment with a network's classes."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from randomset.data import load_inputs, load_source
from randomset.errors import LabelError, RandomSetError
from tests.data.conftest import saved


class TestLoadSource:
    def test_digits(self):
        digits = load_source("digits")
        assert digits.kind == "images"
        assert digits.inputs.shape == (1797, 1, 8, 8)
        assert (digits.inputs.min().item(), digits.inputs.max().item()) == (0, 1)
        assert digits.classes == tuple("0123456789")
        assert torch.equal(load_inputs("digits"), digits.inputs)

    def test_features_with_class_names(self, file):
        labels = np.array(["cat", "dog", "cat"])
        source = load_source(
            saved(file, features=np.ones((3, 2)), labels=labels, classes=np.array(["dog", "cat"]))
        )
        assert source.kind == "features"
        assert source.labels.tolist() == [1, 0, 1]
        assert source.classes == ("dog", "cat")

    def test_set_valued_labels(self, file):
        mask = np.array([[1, 1, 0], [0, 0, 1]])
        source = load_source(
            saved(file, features=np.ones((2, 2)), labels=mask, classes=np.array(list("abc")))
        )
        assert source.labels.dtype == torch.bool
        assert source.labels.tolist() == mask.astype(bool).tolist()
        assert source.classes == ("a", "b", "c")

    def test_load_inputs_needs_no_labels(self, file):
        assert load_inputs(saved(file, features=np.ones((2, 5), dtype=np.int16))).shape == (2, 5)

    @pytest.mark.parametrize("labels", [torch.full((4,), -1), torch.zeros(4, dtype=torch.long)])
    def test_load_inputs_ignores_labels(self, labels):
        data = TensorDataset(torch.randn(4, 3), labels)
        assert torch.equal(load_inputs(data), data.tensors[0])
        assert not load_source(data, labelled=False).labelled

    def test_upper_case_suffixes(self, tmp_path):
        path = tmp_path / "DATA.CSV"
        path.write_text("a,b,label\n1,2,x\n3,4,y\n", encoding="utf-8")
        assert load_source(path).classes == ("x", "y")

    def test_unsupported_sources(self):
        with pytest.raises(RandomSetError, match="unsupported data source; got int"):
            load_source(3)


class TestSplit:
    def test_split_is_stratified(self):
        digits = load_source("digits")
        rest, held, left = digits.split(0.1, 0.2, seed=1)
        assert sorted([*rest.tolist(), *held.tolist(), *left.tolist()]) == list(range(1797))
        counts = [torch.bincount(digits.labels[part]) / len(part) for part in (rest, held, left)]
        assert (counts[0] - counts[1]).abs().max() < 0.01
        assert (counts[0] - counts[2]).abs().max() < 0.01
        assert torch.equal(held, digits.split(0.1, 0.2, seed=1)[1])
        assert not torch.equal(held, digits.split(0.1, 0.2, seed=2)[1])

    def test_single_sample_of_a_class_stays_in_the_remainder(self, file):
        source = load_source(saved(file, features=np.ones((21, 1)), labels=np.r_[np.zeros(20, int), 1]))
        assert 20 in source.split(0.2, 0.2)[0].tolist()

    def test_shares_that_leave_nothing(self):
        with pytest.raises(RandomSetError, match="leave no samples"):
            load_source("digits").split(0.5, 0.5)


def test_labels_are_aligned_with_class_names(tmp_path):
    np.savez(tmp_path / "a.npz", features=np.eye(3), labels=np.array(["dog", "cat", "dog"]))
    source = load_source(tmp_path / "a.npz")
    assert source.labels.tolist() == [1, 0, 1]
    assert source.aligned(("dog", "bird", "cat")).labels.tolist() == [0, 2, 0]
    assert source.part(torch.tensor([1])).aligned(("cat", "bird")).labels.tolist() == [0]  # without dog
    with pytest.raises(LabelError, match="unknown class; got dog in a"):
        source.aligned(("cat", "bird"))
    sets = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0]])
    np.savez(tmp_path / "b.npz", features=np.eye(3), labels=sets, classes=np.array(list("xyz")))
    masks = load_source(tmp_path / "b.npz").aligned(tuple("yx"))  # z never occurs
    assert masks.labels.tolist() == [[True, True], [True, False], [False, True]]
