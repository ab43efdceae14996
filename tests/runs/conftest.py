"""A run that was trained on a folder of photos, and copies of it to change."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from randomset.models import RandomSetNetwork
from randomset.runs import Run
from randomset.training.config import TrainConfig

SMALL: dict[str, Any] = {"backbone": "mlp", "width": 8, "epochs": 2, "num_sets": 1}


def write_photos(folder, rows):
    """Write digits as images, in a folder for each of three classes."""
    digits = load_digits()
    for row in rows:
        path = Path(folder) / str(digits.target[row] % 3) / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[row] * 15).astype(np.uint8)).save(path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with `photos`, 200 of them, and `run`, trained on 130."""
    home = tmp_path_factory.mktemp("photos")
    write_photos(home / "photos", range(200))
    config = TrainConfig(source=str(home / "photos"), **SMALL)
    Run.train(config, home / "run")
    return home


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run; its photos are shared, and must not be changed."""
    return Run(shutil.copytree(trained / "run", tmp_path / "run"))


@pytest.fixture
def changing(trained, tmp_path):
    """A run, and its own photos to change."""
    photos = Path(shutil.copytree(trained / "photos", tmp_path / "photos"))
    run = Run(shutil.copytree(trained / "run", tmp_path / "run"))
    network = RandomSetNetwork.load(run.folder)
    network.notes["config"]["source"] = str(photos)
    network.save(run.folder)
    return run, photos
