"""Data and fixtures shared by the tests of budgeting."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from torch import nn

from randomset.budgeting.gaussians import Ellipsoids


def balls(centres, radii, radius=1.0):
    """Return spherical class regions."""
    centres = np.asarray(centres, float)
    d = centres.shape[1]
    spread = np.stack([np.eye(d) * r**2 for r in radii])
    return Ellipsoids.from_moments(centres, spread, range(len(centres)), radius)


def clusters(n=5, per_class=60, features=6, seed=0, apart=2.0):
    """Return features and labels of Gaussian clusters with random centres."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(0, apart, (n, features))
    labels = np.repeat(np.arange(n), per_class)
    return centres[labels] + draw.normal(size=(n * per_class, features)), labels


CENTRES = np.array([[0.0, 0, 0, 0], [1, 0, 0, 0], [9, 0, 0, 0], [9, 9, 0, 0]])


def batch(seed, size=800, centres=CENTRES):
    """Return features and labels of Gaussian clusters with the given centres."""
    draw = np.random.default_rng(seed)
    y = np.arange(size) % len(centres)
    return centres[y] + draw.normal(size=(size, 4)), y


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return data.data[:500], data.target[:500]


class Backwards(nn.Module):
    """A network that defines its last layer first and uses dropout."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5))

    def forward(self, x):
        return self.head(self.body(x))
