"""No test depends on chance: every test draws the same random numbers, and none draws from elsewhere."""

import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parent.parent
UNSEEDED = re.compile(r"(default_rng|RandomState|torch\.seed)\(\s*\)|SystemRandom|os\.urandom|secrets\.")


def draw():
    return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002


@pytest.fixture
def seed(request):
    """What the root conftest.py seeds tests with, by a name."""
    return next(
        plugin._seed for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "_seed")
    )


@pytest.fixture(scope="module")
def shared():
    return draw()


def test_the_seed_follows_from_the_name_of_the_test(seed):
    drawn = draw()
    assert draw() != drawn
    seed("test_the_seed_follows_from_the_name_of_the_test")
    assert draw() == drawn
    seed("another_test")
    assert draw() != drawn


def test_a_shared_fixture_does_not_depend_on_which_test_comes_first(shared, seed):
    drawn = draw()
    seed("shared")
    assert draw() == shared
    seed("test_a_shared_fixture_does_not_depend_on_which_test_comes_first")
    assert draw() == drawn  # nor does the test on the fixture


def test_no_generator_is_unseeded():
    for path in (ROOT / "tests").rglob("*.py"):
        if path != Path(__file__):
            assert not UNSEEDED.search(path.read_text(encoding="utf-8")), path
