"""A small text encoder in a folder, and a pickle that runs code."""

import pytest

from tests.texts import tiny_bert

TEXTS = ["cats purr", "dogs bark and dogs run", "cats"]


class RunsCode:
    def __reduce__(self):
        return (print, ("this must never be seen",))


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))
