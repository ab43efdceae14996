"""Files of random sets."""

import json
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from randomset import Budget, RandomSet
from randomset.errors import FileFormatError, RandomSetError
from tests.strategies import budgets, seeds


class TestFiles:
    """Save and load."""

    @given(budgets(max_classes=5), seeds, st.sampled_from([torch.float32, torch.float64]))
    def test_round_trip(self, tmp_path_factory, budget, seed, dtype):
        path = tmp_path_factory.mktemp("saved") / "answer.safetensors"
        logits = torch.randn(4, len(budget), generator=torch.Generator().manual_seed(seed), dtype=dtype)
        first = RandomSet.from_logits(logits, budget)
        assert first.save(path) == path
        again = RandomSet.load(str(path))
        assert torch.equal(again.mass, first.mass)
        assert again.budget == first.budget
        assert torch.equal(again.validity.repaired, first.validity.repaired)
        assert [p.name for p in path.parent.iterdir()] == [path.name]

    def test_failed_save_keeps_the_old_file(self, answer, tmp_path, monkeypatch):
        path = answer.save(tmp_path / "answer.safetensors")
        before = path.read_bytes()

        def full(*arguments, **options):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(OSError, match="No space left"):
            answer[:1].save(path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    def test_file_is_readable_by_others(self, answer, tmp_path):
        plain = tmp_path / "plain"
        plain.touch()
        path = answer.save(tmp_path / "answer.safetensors")
        assert path.stat().st_mode == plain.stat().st_mode

    def test_folder_instead_of_a_file(self, answer, tmp_path):
        with pytest.raises(RandomSetError, match="the output path is a folder"):
            answer.save(tmp_path)
        with pytest.raises(FileFormatError, match="expected a file, got a folder"):
            RandomSet.load(tmp_path)

    def test_missing_folder(self, answer, tmp_path):
        with pytest.raises(RandomSetError, match="the folder does not exist"):
            answer.save(tmp_path / "none" / "answer.safetensors")
        with pytest.raises(FileFormatError, match="no such file"):
            RandomSet.load(tmp_path / "none.safetensors")

    def test_file_of_another_format(self, tmp_path):
        from safetensors.torch import save_file

        path = tmp_path / "weights.safetensors"
        save_file({"weight": torch.zeros(3)}, path)
        with pytest.raises(FileFormatError, match=r"does not contain a random set; got weights\.safetensors"):
            RandomSet.load(path)

    def test_truncated_file(self, answer, tmp_path):
        path = answer.save(tmp_path / "answer.safetensors")
        content = path.read_bytes()
        for size in (0, 4, 20, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:size])
            with pytest.raises(FileFormatError, match="the file is not safetensors"):
                RandomSet.load(path)

    @pytest.mark.parametrize("key", ["budget", "version"])
    def test_inconsistent_header(self, answer, tmp_path, key):
        path = answer.save(tmp_path / "answer.safetensors")
        content = path.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        header["__metadata__"][key] = Budget.singletons(9).to_json() if key == "budget" else "7"
        changed = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + size :])
        with pytest.raises(
            FileFormatError, match="do not match the budget" if key == "budget" else "version '7'"
        ):
            RandomSet.load(path)
