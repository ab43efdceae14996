"""Documents with a format and version, and writable paths; tests/hardening/test_disk.py has full disks."""

import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from randomset._core.files import (
    check_version,
    check_writable,
    expanded,
    read_document,
    replacing,
    save_tensors,
    write_document,
)
from randomset.errors import FileFormatError, RandomSetError


def test_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert expanded("~/run") == Path("/home/ada/run")
    assert expanded("~nobody-of-this-name/run") == Path("~nobody-of-this-name/run")


def test_replaced_file_is_readable_by_others(tmp_path):
    with replacing(tmp_path / "a") as temporary:
        temporary.write_text("new")
        assert not (tmp_path / "a").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) & 0o600 == 0o600


@pytest.mark.parametrize(("path", "message"), [(".", "path is a folder"), ("no/a", "folder does not exist")])
def test_paths_that_cannot_be_replaced(tmp_path, path, message):
    with pytest.raises(RandomSetError, match=message), replacing(tmp_path / path):
        pass


def test_tensors_that_share_memory(tmp_path):
    x = torch.rand(4)
    save_tensors({"a": x, "b": x[:2]}, tmp_path / "x.safetensors", {"format": "test"})
    saved = load_file(tmp_path / "x.safetensors")
    assert torch.equal(saved["a"], x)
    assert torch.equal(saved["b"], x[:2])


def test_documents(tmp_path):
    path = tmp_path / "a.json"
    write_document({"name": "Θ"}, path, "test.a", 1, indent=1)
    assert read_document(path, "test.a", 1, "the test") == {"format": "test.a", "version": 1, "name": "Θ"}
    with pytest.raises(FileFormatError, match=r"the test cannot be read; got .*expected format 'test.b'"):
        read_document(path, "test.b", 1, "the test")


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"format": 3}'])
def test_files_that_are_not_documents(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(FileFormatError, match="the test cannot be read"):
        read_document(tmp_path / "a.json", "test.a", 1, "the test")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (2, r"written by a newer version of randomset; got x: version 2.*Update randomset"),
        (0, r"written by another version of randomset.*Create it again"),
        (None, "another version"),
        (True, "another version"),
        ("9" * 10_000, "newer version"),
    ],
)
def test_versions(version, message):
    check_version(1, 1, "the test")
    with pytest.raises(FileFormatError, match=message):
        check_version(version, 1, "the test", "x")


def test_writable_path_leaves_nothing_but_its_folder(tmp_path):
    check_writable(tmp_path / "new" / "x")
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]


def test_unwritable_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RandomSetError, match="cannot write the output"):
        check_writable(tmp_path / "file" / "below" / "x")
    if Path("/proc/self").exists():
        with pytest.raises(RandomSetError, match="cannot write the output"):
            check_writable(Path("/proc/self/below/x"))
    with pytest.raises(FileFormatError, match="output path is a folder"):
        check_writable(tmp_path)
