"""Confidence ellipsoids of Gaussians and mixtures."""

import numpy as np
import pytest

from randomset import Budgeter
from randomset.budgeting.ellipsoids import Ellipsoids, coverage_from_radius, radius_from_coverage
from randomset.budgeting.gaussians import ClassGaussians


def test_coverage_and_radius_are_inverse_functions():
    assert radius_from_coverage(0.95, 3) ** 2 == pytest.approx(7.815, abs=1e-3)  # the paper's constant
    assert coverage_from_radius(radius_from_coverage(0.9, 5), 5) == pytest.approx(0.9)


def test_ellipsoids_contain_the_nominal_share():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(40_000, 3)) @ np.array([[3.0, 0, 0], [1, 1, 0], [0, 2, 0.2]])
    gaussians = ClassGaussians.from_points(x, np.zeros(len(x), int), 1)
    budget_radius = 7.815**0.5
    inside = Ellipsoids.from_gaussians(gaussians, 1e-9, budget_radius).contain(x)
    assert inside.mean() == pytest.approx(0.95, abs=0.004)


def test_mixture_with_several_components_per_class():
    # class 0 lies on both sides of class 1 and overlaps it only as a single Gaussian
    draw = np.random.default_rng(0)
    x = draw.normal(size=(600, 2)) * 0.3
    x[:200, 0] += np.where(np.arange(200) < 100, -4, 4)
    y = np.repeat([0, 1, 2], 200)
    x[400:, 1] += 1.0
    one = Budgeter(1, reducer=None).fit(x, y)
    two = Budgeter(1, reducer=None, components=2).fit(x, y)
    assert len(two.ellipsoids_) == 6
    assert two.ranking_.sets == [(1, 2)]
    pairs = (Budgeter(3, reducer=None, components=c).fit(x, y).ranking_ for c in (1, 2))
    near, far = (dict(zip(r.sets, r.radii, strict=True))[0, 1] for r in pairs)
    assert near < far
    assert len(one.ellipsoids_) == 3


def test_empty_components_are_dropped():
    y = np.repeat([0, 1, 2], 60)
    x = np.array([[9.0, 0], [0, 9], [9, 9]])[y] + 1e-3 * np.random.default_rng(0).normal(size=(180, 2))
    x[y == 0] = [9, 0]
    budgeter = Budgeter(3, reducer=None, components=3).fit(x, y)
    nearest = np.abs(budgeter.ellipsoids_.centres).max(1)
    assert (nearest > 8).all()  # none at the origin
