"""Settings and fixtures of every test. The conftest.py above seeds random numbers from a test's name."""

import os
import shutil
import sys

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a model that is not here is an error at once
settings.register_profile(
    "randomset",
    deadline=None,  # machines are noisy
    max_examples=10 if os.environ.get("RANDOMSET_QUICK") else 40,  # `make quick` sets it
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("randomset")


@pytest.fixture(autouse=True)
def _registered_methods():
    """Remove the methods that a test registered."""
    registry = sys.modules.get("randomset.models.storage")
    before = None if registry is None else dict(registry._CLASSES)
    yield
    if registry is not None and before is not None:
        registry._CLASSES.clear()
        registry._CLASSES.update(before)


@pytest.fixture(scope="session")
def digits():
    """Handwritten digits as rows of 64 numbers: 800 to train on, and 300 to validate."""
    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import TensorDataset

    data = load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    return TensorDataset(x[:800], y[:800]), TensorDataset(x[800:1100], y[800:1100])


@pytest.fixture(scope="session")
def digit_images():
    """400 handwritten digits as images, their labels, and the names of the classes."""
    from randomset.data import load_source

    source = load_source("digits")
    return source.inputs[:400], source.labels[:400], source.classes


@pytest.fixture(scope="module")
def browser():
    """A real browser, which asks nothing of anybody by itself."""
    names = ("chromium", "google-chrome", "chromium-browser")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=flags)
        yield chromium
        chromium.close()
