"""`randomset serve`: what is checked before the service starts."""

import socket

import pytest

from randomset.cli.serve import _hosts, _listener, _samples
from randomset.errors import RandomSetError
from randomset.serving.model import ServedModel
from tests.commands import run_here
from tests.hardening.conftest import RUNS


@pytest.mark.parametrize(
    ("option", "value"),
    [("--max-bytes", 0), ("--port", 70000), ("--timeout", 0), ("--threads", 0), ("--max-batch", -1)],
)
def test_values_out_of_range(option, value, tmp_path, monkeypatch, capsys):
    code, error = run_here(monkeypatch, capsys, "serve", "run", option, value, cwd=tmp_path)
    assert code == 2
    assert f"{option} is out of range" in error


def test_an_address_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RandomSetError, match=r"cannot listen on this address; .*--port"):
            _listener("127.0.0.1", taken.getsockname()[1])


def test_host_names():
    local = frozenset(("localhost", "127.0.0.1", "[::1]"))
    assert _hosts("127.0.0.1", []) == local
    assert _hosts("0.0.0.0", []) is None
    assert _hosts("0.0.0.0", ["Example.org"]) == local | {"0.0.0.0", "example.org"}


def test_samples_of_the_run():
    model = ServedModel(RUNS / "0.1")
    samples = _samples(RUNS / "0.1", model, most=20)
    assert [sample["label"] for sample in samples] == [str(c) for c in range(10) for _ in range(2)]
