"""Networks, image files and running services that the tests of this folder share."""

import io
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

from randomset import RandomSetNetwork, backbones
from randomset.backbones.inputs import Standardise
from randomset.evaluation import Threshold
from randomset.serving.app import create_app
from randomset.serving.model import Limits, ServedModel
from tests.commands import run
from tests.strategies import random_budget

TEN = random_budget(10, 20, seed=0, max_size=3)
JSON, PNG = {"Content-Type": "application/json"}, {"Content-Type": "image/png"}
LIMITS = Limits(bytes=200_000, pixels=10_000, batch=16, waiting=32, seconds=20)


def digits(size, channels=1):
    """Return real images as bytes, enlarged."""
    images = torch.from_numpy(load_digits().images[:12] / 16).float()[:, None]
    images = nn.functional.interpolate(images, (size, size), mode="bilinear")
    return (images * 255).round().to(torch.uint8).expand(-1, channels, -1, -1).contiguous()


def network_of(backbone, budget=TEN, **options):
    torch.manual_seed(0)
    network = RandomSetNetwork(backbone, budget, **options).eval()
    with torch.no_grad():  # so that predictions differ
        for layer in network.head.layers:
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(20)
    return network


def noted(model, shape, **more):
    model.notes = {
        "classes": [str(digit) for digit in range(10)],
        "input_shape": list(shape),
        "largest_input": 1.0,
        "test": {"accuracy": 0.9, "samples": 100},
        **more,
    }
    return model


def served(folder, limits=LIMITS):
    return TestClient(create_app(ServedModel(folder, limits)), raise_server_exceptions=False)


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """A client of an image network, and the network."""
    folder = tmp_path_factory.mktemp("images")
    network = network_of(backbones.small_cnn(image_size=16), preprocess=Standardise(0.2, 0.3))
    noted(network, (1, 16, 16)).save(folder)
    Threshold("entropy", 2.0, 0.95).save(folder)
    with served(folder) as client:
        yield client, network


def as_file(array, format="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, format, **options)
    return stream.getvalue()


def pngs(count):
    return [as_file(image[0].numpy()) for image in digits(16)[:count]]


@contextmanager
def started(place, cwd, *options, before=None):
    """Start the service on a free port; yield the process and its address."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "randomset", "serve", place, "--port", "0", *options]
    with subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=before
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://[\d.]+:\d+", line)
            assert found, line
            yield process, found[0]
        finally:
            process.kill()


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    out = run("train", "digits", "--out", "run", "--epochs", 8, cwd=folder)
    assert out.returncode == 0, out.stderr
    with started("run", folder) as (process, address):
        yield folder, address
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
