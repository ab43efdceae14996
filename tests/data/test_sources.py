"""Sources by name and by path, and what is wrong with them."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from randomset.data import load_inputs, load_source
from randomset.errors import RandomSetError


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data.npz"


class TestKinds:
    def test_digits(self):
        digits = load_source("digits")
        assert digits.kind == "images"
        assert digits.inputs.shape == (1797, 1, 8, 8)
        assert (digits.inputs.min().item(), digits.inputs.max().item()) == (0, 1)
        assert digits.classes == tuple("0123456789")
        assert torch.equal(load_inputs("digits"), digits.inputs)

    @pytest.mark.parametrize(
        ("shape", "expected"),
        [
            ((6, 8, 8), (6, 1, 8, 8)),
            ((6, 9, 8, 3), (6, 3, 9, 8)),
            ((6, 3, 9, 8), (6, 3, 9, 8)),
            ((6, 28, 28, 1), (6, 1, 28, 28)),
        ],
    )
    def test_images_of_every_layout(self, file, shape, expected):
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        source = load_source(saved(file, images=images, labels=np.arange(6) % 2))
        assert source.inputs.shape == expected
        assert source.inputs.dtype == torch.uint8
        assert source.inputs.sum() == images.sum()
        if len(shape) == 4 and shape != expected:
            assert source.inputs[1, 2 % expected[1], 3, 4] == images[1, 3, 4, 2 % expected[1]]

    def test_whole_numbers_that_are_bytes(self, file):
        images = np.arange(32).reshape(2, 4, 4)
        assert load_inputs(saved(file, images=images)).dtype == torch.uint8
        assert load_inputs(saved(file, images=images * 100)).dtype == torch.float32

    def test_features_with_names(self, file):
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

    def test_prediction_needs_no_labels(self, file):
        assert load_inputs(saved(file, features=np.ones((2, 5), dtype=np.int16))).shape == (2, 5)

    @pytest.mark.parametrize("labels", [torch.full((4,), -1), torch.zeros(4, dtype=torch.long)])
    def test_prediction_does_not_look_at_labels_of_a_data_set(self, labels):
        data = TensorDataset(torch.randn(4, 3), labels)
        assert torch.equal(load_inputs(data), data.tensors[0])
        assert not load_source(data, labelled=False).labelled

    def test_endings_in_capitals(self, tmp_path):
        path = tmp_path / "DATA.CSV"
        path.write_text("a,b,label\n1,2,x\n3,4,y\n", encoding="utf-8")
        assert load_source(path).classes == ("x", "y")


class TestSplit:
    def test_every_class_in_its_proportion(self):
        digits = load_source("digits")
        rest, held, left = digits.split(0.1, 0.2, seed=1)
        assert sorted([*rest.tolist(), *held.tolist(), *left.tolist()]) == list(range(1797))
        counts = [torch.bincount(digits.labels[part]) / len(part) for part in (rest, held, left)]
        assert (counts[0] - counts[1]).abs().max() < 0.01
        assert (counts[0] - counts[2]).abs().max() < 0.01
        assert torch.equal(held, digits.split(0.1, 0.2, seed=1)[1])
        assert not torch.equal(held, digits.split(0.1, 0.2, seed=2)[1])

    def test_a_class_of_one_sample_stays_with_the_rest(self, file):
        source = load_source(saved(file, features=np.ones((21, 1)), labels=np.r_[np.zeros(20, int), 1]))
        assert 20 in source.split(0.2, 0.2)[0].tolist()

    def test_nothing_left(self):
        with pytest.raises(RandomSetError, match="leave no samples"):
            load_source("digits").split(0.5, 0.5)


ONES = np.ones((4, 3))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": ONES}, "no array 'labels'"),
        ({"labels": np.arange(4)}, "neither"),
        ({"features": ONES, "images": ONES, "labels": np.arange(4)}, "both"),
        ({"features": ONES, "labels": np.arange(3)}, "do not match"),
        ({"features": ONES * np.nan, "labels": np.arange(4)}, "NaN or infinity in sample 0"),
        ({"features": np.array(["a", "b"]), "labels": np.arange(2)}, "not arrays of numbers"),
        ({"features": np.ones((0, 3)), "labels": np.arange(0)}, "not arrays of numbers"),
        ({"images": np.ones((4, 3, 3, 3, 3)), "labels": np.arange(4)}, "no images"),
        ({"features": ONES, "labels": np.zeros((4, 2))}, "empty set in row 0"),
        ({"features": ONES, "labels": np.full((4, 2), 2)}, "row of 0 and 1"),
        ({"features": ONES, "labels": np.full((4, 2), "a")}, "row of 0 and 1"),
        ({"features": ONES, "labels": np.ones((0, 2))}, "row of 0 and 1"),
        ({"features": ONES, "labels": np.ones((4, 2)), "classes": np.array(["a"])}, "1 names for 2"),
        ({"features": ONES, "labels": np.zeros(4, int)}, "one class only"),
        ({"features": np.array([{}, {}]), "labels": np.arange(2)}, "Python objects"),
    ],
)
def test_what_is_wrong_is_said(file, arrays, message):
    with pytest.raises(RandomSetError, match=message):
        load_source(saved(file, **arrays))


def test_files_that_are_none(file):
    with pytest.raises(RandomSetError, match="no such data"):
        load_source(file)
    file.write_text("hello")
    with pytest.raises(RandomSetError, match="another kind of file"):
        load_source(file)
    file.write_bytes(b"")
    with pytest.raises(RandomSetError, match="cannot be read"):
        load_inputs(file)
