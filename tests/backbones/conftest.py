"""A small text encoder in a folder, an empty cache of weights, and a pickle that runs code."""

import pytest

from tests.texts import tiny_bert

TEXTS = ["cats purr", "dogs bark and dogs run", "cats"]


class RunsCode:
    def __reduce__(self):
        return (print, ("this must never be seen",))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of published weights, empty; none can be downloaded."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))
