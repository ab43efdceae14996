"""What is for learning and what for testing: the paper's numbers, a user's shares, the same every time."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from randomset._core.checks import stratified_parts
from randomset.data import load_source
from randomset.data.sources import Source
from randomset.data.splits import Parts, fingerprint, resolved, sample_digests, unseen, usual_shares
from randomset.errors import FileFormatError, RandomSetError
from tests.hardening.conftest import RUNS


class TestParts:
    def test_rows_come_back_from_the_file(self, tmp_path):
        digits = load_source("digits")
        parts = Parts.of(digits, "digits", 0.1, 0.05, 0.2, seed=3)
        assert [len(p) for p in (parts.train, parts.validation, parts.calibration, parts.test)] == [
            *(1168, 180, 90, 359)
        ]
        everything = torch.cat((parts.train, parts.validation, parts.calibration, parts.test))
        assert torch.equal(everything.sort().values, torch.arange(1797))
        parts.save(tmp_path / "split.json", digits)
        again = Parts.load(tmp_path / "split.json", digits)
        for name in ("train", "validation", "calibration", "test"):
            assert torch.equal(getattr(parts, name), getattr(again, name)), name
        assert torch.equal(again.test_data(digits).labels, digits.labels[parts.test])
        more = replace(digits, labels=digits.labels.flip(0))
        for other in (digits.part(torch.arange(500)), more, replace(digits, files=("a.png",) * 1797)):
            with pytest.raises(FileFormatError, match="have changed since training"):
                Parts.load(tmp_path / "split.json", other)

    @pytest.mark.parametrize("content", ["", "[]", '{"format": "randomset.split", "version": 1}'])
    def test_damaged_files(self, tmp_path, content):
        (tmp_path / "split.json").write_text(content)
        with pytest.raises(FileFormatError, match=r"split\.json"):
            Parts.load(tmp_path / "split.json", load_source("digits"))


class TestPublishedTestData:
    @pytest.fixture
    def mnist(self, tmp_path, monkeypatch):
        """Sixty thousand tiny digits, and ten thousand to test on, as MNIST is published."""
        monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path))
        raw = tmp_path / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for stem, count in (("train", 60000), ("t10k", 10000)):
            size = count.to_bytes(4, "big")
            pixels = bytes([0, 0, 8, 3]) + size + bytes([0, 0, 0, 1] * 2) + bytes(count)
            marks = bytes([0, 0, 8, 1]) + size + (np.arange(count) % 10).astype(np.uint8).tobytes()
            (raw / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(pixels, 1))
            (raw / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(marks, 1))

    def test_the_papers_split(self, mnist):
        shares = usual_shares("mnist")
        assert shares == {"validation": 9000, "calibration": 1000, "test": 0}
        data = load_source("mnist")
        parts = Parts.of(data, "mnist", **shares, seed=0)
        assert (len(parts.train), len(parts.validation), len(parts.calibration)) == (50000, 9000, 1000)
        assert parts.test is None
        assert len(parts.test_data(data)) == 10000
        assert torch.bincount(data.labels[parts.train]).tolist() == [5000] * 10

    def test_without_the_test_files(self, tmp_path, monkeypatch):
        monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path))
        assert usual_shares("mnist")["test"] == 0.2
        assert usual_shares("anything/else.npz")["validation"] == 0.1


@pytest.mark.parametrize(("samples", "held"), [(400, 40), (150, 20), (79, 8), (80, 20)])
def test_enough_samples_to_fit_a_reliability(samples, held):
    labels = torch.arange(samples) % 2
    data = Source("data", "features", torch.randn(samples, 3), labels, ("a", "b"))
    assert len(Parts.of(data, "data", 0.1, 0.05, 0.2, 0).validation) == held
    assert len(Parts.of(data, "data", 3, 0.05, 0.2, 0).validation) == 3  # as asked for
    assert len(Parts.of(data, "data", 0, 0.05, 0.2, 0).validation) == 0


class TestStrata:
    @pytest.mark.parametrize("seed", range(3))
    def test_exact_numbers_and_proportions(self, seed):
        labels = np.random.default_rng(seed).integers(0, 7, 997) ** 2
        rest, first, second = stratified_parts(labels, [100, 0.25], seed)
        assert (len(first), len(second)) == (100, 249)
        assert sorted(np.concatenate([rest, first, second]).tolist()) == list(range(997))
        for code in np.unique(labels):
            share = (labels == code).mean()
            for part in (first, second):
                assert abs((labels[part] == code).sum() - share * len(part)) <= 2

    def test_too_many(self):
        for shares in ([12], [0.5, 0.5], [-0.1], [1.0], [5, 0.6]):
            with pytest.raises(RandomSetError, match="leave no samples"):
                stratified_parts(np.arange(12) % 2, shares)


def source(rows, kind="images", repeats=1):
    """Samples of two classes, each different from all others unless rows repeat."""
    if kind == "text":
        inputs = [f"text number {row}" for row in rows]
    else:
        values = torch.tensor([row // repeats for row in rows])
        pixels = torch.stack([values % 256, values // 256, 7 + values * 0, 9 + values * 0], 1)
        inputs = pixels.float() if kind == "features" else pixels.to(torch.uint8).reshape(-1, 1, 2, 2)
    return Source("things", kind, inputs, torch.tensor([row % 2 for row in rows]), ("a", "b"))


class TestChangedData:
    """A run of 200 samples: 120 to train on, 20 to validate, 20 to calibrate, 40 to test on."""

    @pytest.fixture(params=["images", "text", "features"])
    def kind(self, request):
        return request.param

    @pytest.fixture
    def stored(self, kind, tmp_path):
        return self.store(tmp_path, source(range(200), kind))

    def store(self, folder, data):
        parts = Parts.of(data, "things", 0.1, 0.1, 0.2, seed=0)
        parts.save(folder / "split.json", data)
        return parts

    def test_one_sample_more(self, kind, stored, tmp_path):
        parts, remarks = Parts.match(tmp_path / "split.json", source([500, *range(200)], kind))
        assert remarks == ("1 of 201 samples are new since training",)
        assert torch.equal(parts.train, stored.train + 1)
        assert torch.equal(parts.validation, stored.validation + 1)
        assert parts.test.tolist() == [0, *(stored.test + 1).tolist()]

    def test_one_sample_less(self, kind, stored, tmp_path):
        row = int(stored.test[0])
        rows = [other for other in range(200) if other != row]
        parts, remarks = Parts.match(tmp_path / "split.json", source(rows, kind))
        assert remarks == ("1 of the 200 samples at training time are missing",)
        assert [rows[place] for place in parts.test] == stored.test.tolist()[1:]
        assert [rows[place] for place in parts.train] == stored.train.tolist()

    def test_one_sample_with_another_label(self, kind, stored, tmp_path):
        data = source(range(200), kind)
        labels = data.labels.clone()
        labels[int(stored.test[0])] ^= 1
        parts, remarks = Parts.match(tmp_path / "split.json", replace(data, labels=labels))
        assert remarks == ()
        for name in ("train", "validation", "calibration", "test"):
            assert torch.equal(getattr(parts, name), getattr(stored, name))

    def test_another_order(self, kind, stored, tmp_path):
        rows = torch.randperm(200).tolist()
        parts, remarks = Parts.match(tmp_path / "split.json", source(rows, kind))
        assert remarks == ()
        assert sorted(rows[place] for place in parts.test) == stored.test.tolist()

    def test_a_second_copy_of_a_training_sample_is_no_test_sample(self, kind, stored, tmp_path):
        data = source([*range(200), int(stored.train[3]), int(stored.test[3])], kind)
        parts, remarks = Parts.match(tmp_path / "split.json", data)
        assert 200 not in parts.test
        assert 201 in parts.test  # it was never used in training
        assert (
            "1 of 202 samples are additional copies of samples used in training and are excluded" in remarks
        )

    def test_a_copy_given_as_test_data(self, kind, stored, tmp_path):
        rows = torch.randperm(200).tolist()
        left = unseen(tmp_path / "split.json", source(rows, kind))
        assert left.remarks == ("160 of 200 inputs were used in training and are excluded",)
        expected = source([row for row in rows if row in set(stored.test.tolist())], kind)
        assert torch.equal(left.labels, expected.labels)
        assert sample_digests(left.inputs) == sample_digests(expected.inputs)

    def test_other_data_stay_as_they_are(self, kind, stored, tmp_path):
        data = source(range(1000, 1100), kind)
        assert unseen(tmp_path / "split.json", data) is data
        assert unseen(tmp_path / "nowhere.json", data) is data

    def test_nothing_is_left(self, kind, stored, tmp_path):
        data = source(stored.train.tolist(), kind)
        with pytest.raises(FileFormatError, match=r"no inputs are left to test on; got things: all 120"):
            unseen(tmp_path / "split.json", data)

    def test_resumed_training_needs_the_same_data(self, kind, stored, tmp_path):
        with pytest.raises(FileFormatError, match="have changed since training"):
            Parts.load(tmp_path / "split.json", source([500, *range(200)], kind))

    def test_published_test_data(self, kind, tmp_path):
        """New samples beside the training data are not part of test data that have a folder of their own."""
        data = source(range(200), kind)
        Parts("things", *data.split(0.1, 0.1), None).save(tmp_path / "split.json", data)
        parts, remarks = Parts.match(tmp_path / "split.json", source([*range(200), 500], kind))
        assert parts.test is None
        assert remarks == ("1 of 201 samples are new since training",)
        rows = torch.cat((parts.train, parts.validation, parts.calibration))
        assert sorted(rows.tolist()) == list(range(200))

    def test_a_blank_image_is_not_recognised(self, tmp_path):
        data = source(range(200))
        blank = data.inputs.clone()
        blank[:100] = 0
        self.store(tmp_path, replace(data, inputs=blank))
        others = replace(source(range(1000, 1010)), inputs=torch.zeros(10, 1, 2, 2, dtype=torch.uint8))
        assert len(unseen(tmp_path / "split.json", others)) == 10


class TestRepeatedRows:
    """A table of a few values: equal rows need not be the same sample."""

    @pytest.fixture
    def stored(self, tmp_path):
        return TestChangedData().store(tmp_path, source(range(200), "features", repeats=4))

    def test_other_rows_of_equal_values_are_kept(self, stored, tmp_path):
        data = source(range(0, 200, 2), "features", repeats=4)
        left = unseen(tmp_path / "split.json", data)
        assert len(left) == 100
        assert "equal rows used in training and are kept" in left.remarks[0]

    def test_a_copy_of_the_table_is_recognised(self, stored, tmp_path):
        left = unseen(tmp_path / "split.json", source(range(200), "features", repeats=4))
        assert len(left) == 40
        assert left.remarks == ("160 of 200 inputs were used in training and are excluded",)

    def test_more_rows(self, stored, tmp_path):
        data = source([*range(200), 3, 7], "features", repeats=4)
        parts, remarks = Parts.match(tmp_path / "split.json", data)
        assert parts.test.tolist() == [*stored.test.tolist(), 200, 201]
        assert remarks == ("2 of 202 samples are new since training",)


class TestVersionOne:
    """Runs made before splits had digests."""

    @pytest.fixture
    def path(self):
        return RUNS / "0.1" / "split.json"

    def test_unchanged_data(self, path):
        digits = load_source("digits")
        parts, remarks = Parts.match(path, digits)
        assert remarks == ()
        assert torch.equal(parts.test, Parts.load(path, digits).test)

    def test_changed_data_are_rejected_or_kept(self, path):
        digits = load_source("digits")
        with pytest.raises(FileFormatError, match="have changed since training"):
            Parts.match(path, digits.part(torch.arange(1796)))
        others = digits.part(torch.arange(1796))
        kept = unseen(path, others)
        assert torch.equal(kept.inputs, others.inputs)
        assert "used in training are not recognised" in kept.remarks[0]

    def test_the_same_data_in_another_place_are_tested_on_what_was_held_out(self, path):
        digits = load_source("digits")
        tested = unseen(path, digits)
        assert torch.equal(tested.inputs, digits.inputs[Parts.match(path, digits)[0].test])
        assert "were used in training and are excluded" in tested.remarks[0]


@pytest.mark.parametrize(
    "damage", [{"digests": None}, {"digests": ["a"]}, {"digests": [1] * 200}, {"test": [200]}]
)
def test_damaged_digests(tmp_path, damage):
    data = source(range(200))
    Parts.of(data, "things", 0.1, 0.1, 0.2, seed=0).save(tmp_path / "split.json", data)
    content = json.loads((tmp_path / "split.json").read_text())
    (tmp_path / "split.json").write_text(json.dumps(content | damage))
    for read in (Parts.load, Parts.match, unseen):
        with pytest.raises(FileFormatError, match=r"split\.json"):
            read(tmp_path / "split.json", data)


class TestSamples:
    def test_every_digit_has_its_own(self):
        digits = load_source("digits").inputs
        digests = sample_digests(digits)
        assert len(set(digests)) == len(torch.unique(digits.flatten(1), dim=0))
        assert {len(digest) for digest in digests} == {16}
        order = torch.randperm(len(digits))
        assert sample_digests(digits[order]) == [digests[row] for row in order]

    def test_bytes_and_pixels_are_the_same(self):
        pixels = torch.randint(0, 256, (700, 3, 4, 4), dtype=torch.uint8)
        for other in (pixels / 255, pixels.double() / 255, pixels.clone()):
            assert sample_digests(other) == sample_digests(pixels)

    def test_a_small_difference_counts(self):
        features = torch.randn(5, 4)
        assert set(sample_digests(features)).isdisjoint(sample_digests(features + 1e-5))

    def test_constant_samples_have_none(self):
        assert sample_digests(torch.zeros(2, 1, 4, 4)) == ["", ""]
        assert "" not in sample_digests(torch.zeros(2, 1))  # a single feature is not constant
        assert sample_digests(torch.zeros(0, 4)) == []

    def test_negative_zero_and_values_that_are_not_finite(self):
        rows = torch.tensor([[0.0, 1.5], [float("nan"), 1.5], [float("inf"), 3e38]])
        assert sample_digests(rows)[0] == sample_digests(torch.tensor([[-0.0, 1.5]]))[0]
        assert len(set(sample_digests(rows))) == 3

    def test_texts_and_tokens(self):
        assert len(set(sample_digests(["a cat", "a dog", "a cat"]))) == 2
        assert len(set(sample_digests(torch.tensor([[1, 2, -1], [1, 2, 3]])))) == 2


@pytest.mark.parametrize("change", ["labels", "inputs", "files"])
def test_a_fingerprint_changes_with_the_source(change):
    digits = load_source("digits")
    other = {
        "labels": replace(digits, labels=digits.labels.flip(0)),
        "inputs": replace(digits, inputs=digits.inputs + 1),
        "files": replace(digits, files=("a.png",) * 1797),
    }[change]
    assert fingerprint(other) != fingerprint(digits)
    assert fingerprint(digits) == "11c91b21a47c8aac"  # stored in runs of version 0.1


def test_paths_become_absolute_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    assert resolved("photos") == str(tmp_path / "photos")
    assert [resolved(name) for name in ("", "digits", "mnist", "nowhere")] == [
        "",
        "digits",
        "mnist",
        "nowhere",
    ]
