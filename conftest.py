"""Every test draws the same random numbers, whatever ran before it and in whichever worker it runs.

RANDOMSET_TEST_SEED=1, 2, … gives every test other numbers; RANDOMSET_TEST_ORDER=1, 2, … runs the test files,
and the tests within each, in another order. A test that passes only by chance fails under some of them.
"""

import gc
import os
import random
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

# Until all tests are collected: imports leave hardly any garbage, and searching for it takes seconds.
gc.disable()


def _seed(name: str) -> None:
    """Seed all global generators from a name."""
    import numpy as np  # here, since the process that hands out the tests to workers loads this file too
    import torch

    seed = zlib.crc32(f"{os.environ.get('RANDOMSET_TEST_SEED', '')}{name}".encode())
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    # torch.manual_seed() takes a millisecond: it notes the seed, with a stack trace, for devices not there.
    torch.default_generator.manual_seed(seed)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """Seed Python, NumPy and torch from the name of the test."""
    _seed(request.node.nodeid.partition("::")[2])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Seed a fixture that several tests share from its own name: which test comes first must not matter."""
    if fixturedef.scope == "function":
        return (yield)
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    _seed(fixturedef.argname)
    try:
        return (yield)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but never search what was imported: it stays until the end."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle files, classes and tests, each within its own file or class, if another order is asked for."""
    order = os.environ.get("RANDOMSET_TEST_ORDER")
    if order:
        places = {item.nodeid: item.nodeid.split("::") for item in items}

        def key(item: pytest.Item) -> list[int]:
            parts = places[item.nodeid]
            return [zlib.crc32(f"{order}{'::'.join(parts[: i + 1])}".encode()) for i in range(len(parts))]

        items.sort(key=key)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker run all tests of the reproduction under `--dist loadgroup`: they share minutes of work.

    The mark `xdist_group` does not reach the scheduler: pytest-xdist 3.8 passes it on in the names of tests,
    which pytest 9.2 no longer lets it change (https://github.com/pytest-dev/pytest-xdist/issues/1386).
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "reproduction" if nodeid.startswith("tests/reproduction/") else nodeid

    return Scheduling(config, log)
