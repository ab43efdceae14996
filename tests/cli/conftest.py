"""A run that the tests of several commands share."""

import pytest

from tests.commands import start


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run that was trained on the command line, once for all tests of a process."""
    folder = tmp_path_factory.mktemp("trained")
    out = start("train", "digits", "--out", "run", "--epochs", 3, "--sets", 5, cwd=folder)
    assert out.returncode == 0, out.stderr
    return folder, out.stdout
