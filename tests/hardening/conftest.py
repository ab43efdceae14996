"""The run folder that an earlier version wrote, as a copy to work with."""

import shutil
from pathlib import Path

import pytest

RUNS = Path(__file__).parent / "runs"


@pytest.fixture
def first_run(tmp_path):
    """A run of version 0.1 that was evaluated."""
    return Path(shutil.copytree(RUNS / "0.1", tmp_path / "first-run"))
