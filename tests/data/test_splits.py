"""What is for learning and what for testing: the paper's numbers, a user's shares, the same every time."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
import torch

from randomset._core.splits import stratified_parts
from randomset.data import load_source
from randomset.data.splits import Parts, usual_shares
from randomset.errors import FileFormatError, RandomSetError


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
            with pytest.raises(FileFormatError, match="others than those of the training"):
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
