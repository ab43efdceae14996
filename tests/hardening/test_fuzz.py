"""Whatever stands in a file: it is read, or refused in the library's own words, and nothing in it is run."""

import contextlib
import gzip
import io
import json
import pickle
import random
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import randomset as rs
from randomset.backbones.weights import read_weights
from randomset.data import arrays
from randomset.data.arrays import read_idx
from randomset.data.sources import load_source
from randomset.errors import FileFormatError, RandomSetError
from randomset.models import load as load_model
from tests.commands import run
from tests.hardening.mutations import zipped
from tests.hardening.readers import READERS, fitted, network, read_checkpoint, write_checkpoint


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_every_file_is_read_or_refused(reader, tmp_path):
    reader.write(tmp_path)
    path = tmp_path / reader.file
    whole = path.read_bytes()
    reader.read(tmp_path)

    @settings(max_examples=reader.examples or settings().max_examples)
    @given(st.integers(0, 2**32))
    def spoiled(seed):
        path.write_bytes(reader.spoil(whole, random.Random(seed)))
        with contextlib.suppress(RandomSetError):
            reader.read(tmp_path)

    spoiled()


class TestNothingIsRun:
    """A pickle may do anything when it is read: none is."""

    @pytest.fixture
    def trap(self, tmp_path):
        class Trap:
            def __reduce__(self):
                return Path.touch, (tmp_path / "sprung",)

        pickle.loads(pickle.dumps(Trap()))
        assert (tmp_path / "sprung").exists()  # it works where it is let
        (tmp_path / "sprung").unlink()
        yield Trap()
        assert not (tmp_path / "sprung").exists()

    @pytest.mark.parametrize("name", ["features", "labels", "classes"])
    def test_archives(self, trap, tmp_path, name):
        parts = {"features": np.zeros((4, 2)), "labels": np.arange(4) % 2, "classes": np.array(["a", "b"])}
        np.savez(tmp_path / "data.npz", **{**parts, name: np.array([trap] * 4)})
        with pytest.raises(FileFormatError, match="Python objects"):
            load_source(tmp_path / "data.npz")

    def test_a_pickle_called_npz(self, trap, tmp_path):
        (tmp_path / "data.npz").write_bytes(pickle.dumps(trap))
        with pytest.raises(FileFormatError, match=r"not an \.npz file"):
            load_source(tmp_path / "data.npz")

    @pytest.mark.parametrize("old", [False, True])
    def test_weights(self, trap, tmp_path, old):
        torch.save({"a": torch.ones(2), "b": trap}, tmp_path / "w.pt", _use_new_zipfile_serialization=not old)
        with pytest.raises(FileFormatError, match="does not contain only weights"):
            read_weights(tmp_path / "w.pt")

    @pytest.mark.parametrize("old", [False, True])
    def test_checkpoints(self, trap, tmp_path, old):
        write_checkpoint(tmp_path)
        last = tmp_path / "checkpoints" / "last.ckpt"
        content = torch.load(last, weights_only=True)
        for name in content:
            hostile = {**content, name: trap}
            torch.save(hostile, last, _use_new_zipfile_serialization=not old)
            with pytest.raises(FileFormatError, match=r"damaged or not a checkpoint; got .*last\.ckpt"):
                read_checkpoint(tmp_path)
        last.write_bytes(pickle.dumps(trap))
        with pytest.raises(FileFormatError, match="not a checkpoint"):
            read_checkpoint(tmp_path)

    def test_networks(self, trap, tmp_path):
        torch.save(trap, tmp_path / "model.safetensors")
        with pytest.raises(FileFormatError):
            load_model(tmp_path)


class TestClaims:
    """Files may claim any size; only what they hold is ever asked of the memory."""

    @pytest.fixture(autouse=True)
    def _little_memory(self):
        """Two gigabytes more than now, and no more."""
        resource = pytest.importorskip("resource")
        used = (
            4096 * int(Path("/proc/self/statm").read_text().split()[0])
            if Path("/proc/self/statm").exists()
            else 0
        )
        before = resource.getrlimit(resource.RLIMIT_AS)
        if not used:
            yield
            return
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)

    @pytest.mark.parametrize(
        "shape", ["(1000000000000, 4)", "(-1, 4)", "(4611686018427387904, 2)", "(2, 10**9)"]
    )
    def test_shapes_in_archives(self, tmp_path, shape):
        head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(118) + b"\n"
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(64)
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("features.npy", content)
        with pytest.raises(FileFormatError, match=r"a\.npz"):
            load_source(tmp_path / "a.npz", labelled=False)

    def test_an_archive_that_unpacks_to_more_than_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr(arrays, "LARGE", 2**20)
        np.savez_compressed(tmp_path / "bomb.npz", features=np.zeros((2**16, 64)))
        assert (tmp_path / "bomb.npz").stat().st_size < 2**16
        with pytest.raises(FileFormatError, match="do not fit into memory"):
            load_source(tmp_path / "bomb.npz", labelled=False)

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_two_arrays_of_one_name(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            for value in (1, 2):
                made = io.BytesIO()
                np.save(made, np.full((2, 2), value, np.float32))
                archive.writestr("features.npy", made.getvalue())
        assert load_source(tmp_path / "a.npz", labelled=False).inputs.tolist() == [[2, 2], [2, 2]]

    def test_idx(self, tmp_path):
        claims = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**31, 2**31, 2**31)
        for name, content in (("idx", claims), ("idx.gz", gzip.compress(claims))):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(FileFormatError, match="wrong length"):
                read_idx(tmp_path / name)
        bomb = bytes([0, 0, 8, 1]) + struct.pack(">I", 4) + bytes(2**24)
        (tmp_path / "bomb.gz").write_bytes(gzip.compress(bomb))
        with pytest.raises(FileFormatError, match="more than 4 bytes"):
            read_idx(tmp_path / "bomb.gz")

    @pytest.mark.parametrize(
        "spec",
        [
            {"name": "mlp", "options": {"in_features": 10**9, "widths": [10**6]}},
            {"name": "mlp", "options": {"in_features": 10**12}},
            {"name": "resnet", "options": {"width": 10**5}},
            {"name": "wide_resnet", "options": {"depth": 6 * 10**9 + 4}},
            {"name": "scaled", "options": {"backbone": {"name": "mlp", "options": {"in_features": 10**10}}}},
        ],
    )
    def test_networks(self, tmp_path, spec):
        network().save(tmp_path)
        rewrite_description(tmp_path, {"backbone": spec})
        with pytest.raises(RandomSetError):
            rs.RandomSetNetwork.load(tmp_path)

    @pytest.mark.parametrize(
        "change", [{"in_features": 10**10}, {"options": {"hidden": [10**6, 10**6], "dropout": 0.0}}]
    )
    def test_heads(self, tmp_path, change):
        network().save(tmp_path)
        rewrite_description(tmp_path, change)
        with pytest.raises(FileFormatError, match="does not match its weights"):
            rs.RandomSetNetwork.load(tmp_path)

    @pytest.mark.parametrize(
        "change",
        [
            {"preprocess": "Standardise", "channels": 10**10},
            {"num_classes": 10**10},
            {"options": {"samples": 10**12}},
        ],
    )
    def test_baselines(self, tmp_path, change):
        next(reader for reader in READERS if reader.name == "epinet").write(tmp_path)
        rewrite_description(tmp_path, change)
        with pytest.raises(FileFormatError, match="does not match its weights"):
            load_model(tmp_path)

    @pytest.mark.parametrize(
        "made", [("builtins", "bytearray"), ("torch", "Tensor"), ("torch.storage", "UntypedStorage")]
    )
    def test_objects_in_a_checkpoint(self, tmp_path, made):
        """torch lets a file ask for these, of any size."""
        write_checkpoint(tmp_path)
        call = b"c" + "\n".join((*made, "")).encode() + b"\x8a\x06" + struct.pack("<Q", 2**40)[:6] + b"\x85R."
        parts = [("a/data.pkl", b"\x80\x02" + call), ("a/version", b"3\n"), ("a/byteorder", b"little")]
        (tmp_path / "checkpoints" / "last.ckpt").write_bytes(zipped(parts))
        with pytest.raises(FileFormatError, match="not a checkpoint"):
            read_checkpoint(tmp_path)

    def test_a_compressed_checkpoint(self, tmp_path):
        write_checkpoint(tmp_path)
        last = tmp_path / "checkpoints" / "last.ckpt"
        content = torch.load(last, weights_only=True)
        torch.save({**content, "more": torch.zeros(2**24)}, last)
        with zipfile.ZipFile(last) as archive:
            parts = [(name, archive.read(name)) for name in archive.namelist()]
        last.write_bytes(zipped(parts, zipfile.ZIP_DEFLATED))
        assert last.stat().st_size < 2**18
        with pytest.raises(FileFormatError, match="the archive is compressed"):
            read_checkpoint(tmp_path)

    def test_moments_that_are_larger_than_their_weights(self, tmp_path):
        """One number in the file, which is repeated without end; torch would copy it."""
        write_checkpoint(tmp_path)
        last = tmp_path / "checkpoints" / "last.ckpt"
        content = torch.load(last, weights_only=True)
        content["optimizer_states"][0]["state"][0]["exp_avg"] = torch.zeros(1).expand(2**20, 2**20)
        torch.save(content, last)
        assert last.stat().st_size < 2**16
        with pytest.raises(FileFormatError, match="the checkpoint is inconsistent"):
            read_checkpoint(tmp_path)

    @pytest.mark.parametrize("name", ["layout", "trained", "history", "best", "recipe"])
    def test_lists_of_lists_of_the_same_lists(self, tmp_path, name):
        """Small in the file; to write it out would take all memory."""
        write_checkpoint(tmp_path)
        last = tmp_path / "checkpoints" / "last.ckpt"
        content = torch.load(last, weights_only=True)
        endless: list[object] = ["x"]
        for _ in range(60):
            endless = [endless, endless]
        content["randomset"][name] = {"batches": endless} if name in ("layout", "recipe") else endless
        torch.save(content, last)
        with pytest.raises(FileFormatError):
            read_checkpoint(tmp_path)


def test_checkpoints_of_another_network(tmp_path):
    write_checkpoint(tmp_path)
    last = tmp_path / "checkpoints" / "last.ckpt"
    other = rs.RandomSetNetwork(rs.backbones.mlp(4, (5,)), rs.Budget.powerset(3))
    with pytest.raises(FileFormatError, match=r"belongs to a different network; got .*last\.ckpt"):
        fitted(tmp_path, resume=last, model=other)
    content, whole = torch.load(last, weights_only=True), last.read_bytes()
    bias = "module.head.layers.0.bias"
    for wrong in (torch.zeros(7, 1), torch.zeros(7, dtype=torch.double), torch.zeros(7, dtype=torch.cfloat)):
        torch.save({**content, "state_dict": {**content["state_dict"], bias: wrong}}, last)
        with pytest.raises(FileFormatError, match=rf"differs in 1 tensors, the first {bias}"):
            read_checkpoint(tmp_path)
    schedule = {**content["lr_schedulers"][0], "step": 5}  # which is what the training calls
    torch.save({**content, "lr_schedulers": [schedule]}, last)
    with pytest.raises(FileFormatError, match="the checkpoint is inconsistent"):
        read_checkpoint(tmp_path)
    last.write_bytes(whole)
    assert read_checkpoint(tmp_path)


@pytest.mark.slow
def test_a_command_that_meets_damaged_checkpoints(tmp_path):
    """It resumes from the previous one with a warning; if that is damaged too, nothing is changed."""
    small = ["--method", "softmax", "--backbone", "mlp", "--width", "8", "--epochs", "2"]
    assert run("train", "digits", "--out", "run", *small, cwd=tmp_path).returncode == 0
    folder = tmp_path / "run"
    tested = (folder / "test.json").read_bytes()
    (folder / "test.json").unlink()
    (folder / "checkpoints" / "last.ckpt").write_bytes(pickle.dumps(Path))
    done = run("train", "--out", "run", "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "Resuming from the previous checkpoint, run/checkpoints/previous.ckpt, after epoch 1" in done.stderr
    )
    assert (folder / "test.json").read_bytes() == tested
    (folder / "test.json").unlink()
    for name in ("last.ckpt", "previous.ckpt"):
        (folder / "checkpoints" / name).write_bytes(pickle.dumps(Path))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = run("train", "--out", "run", "--resume", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "last.ckpt" in done.stderr.splitlines()[-1]
    assert "Start again in another folder" in done.stderr
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path: part for path, part in after.items() if path.name != "seconds.json"} == {
        path: part for path, part in before.items() if path.name != "seconds.json"
    }


def rewrite_description(folder, change):
    """Change the description of the model in a folder."""
    rewritten(
        folder / "model.safetensors", "model", lambda header: header | {"model": header["model"] | change}
    )


def rewritten(path, name, change):
    """Change one entry of the metadata of a safetensors file."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    metadata = header["__metadata__"]
    metadata[name] = json.dumps(change(json.loads(metadata[name])))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


class TestData:
    """What was read wrongly, or ended in an error of Python's, before."""

    def test_rows_with_more_cells_than_names(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,label\n1,2,x\n3,4,y\n")
        with pytest.raises(FileFormatError, match="more cells than the header"):
            load_source(tmp_path / "t.csv")

    def test_numbers_beyond_float32(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,label\n1e300,x\n3,y\n")
        with pytest.raises(RandomSetError, match="column a, row 0"):
            load_source(tmp_path / "t.csv")
        np.savez(tmp_path / "a.npz", features=np.array([[1.0], [1e300]]))
        with pytest.raises(RandomSetError, match="float32; got overflow in sample 1"):
            load_source(tmp_path / "a.npz", labelled=False)

    def test_invalid_characters(self, tmp_path):
        names = np.array(["a", "b"])
        names.view(np.uint32)[0] = 0x7FFFFFFF
        np.savez(tmp_path / "a.npz", features=np.zeros((2, 2)), labels=np.arange(2), classes=names)
        with pytest.raises(FileFormatError, match="invalid code points"):
            load_source(tmp_path / "a.npz")

    def test_a_class_stays_in_its_folder(self):
        from randomset.data.downloads import _folder_name

        for name in ("..", "../../x", "a/b", "", ".", "\\..\\x", "a\0b"):
            plain = _folder_name(name)
            assert plain not in ("", ".", "..")
            assert not set(plain) & set("/\\\0")
