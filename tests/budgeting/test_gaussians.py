"""Class Gaussians against scikit-learn, merging, and degenerate classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from randomset import Budgeter
from randomset.budgeting.gaussians import (
    ClassGaussians,
    Ellipsoids,
    coverage_from_radius,
    radius_from_coverage,
)
from randomset.errors import RandomSetWarning
from tests.budgeting.conftest import clusters
from tests.strategies import seeds


@given(seed=seeds, cut=st.integers(0, 40), again=st.integers(0, 40))
def test_merged_parts_equal_the_whole(seed, cut, again):
    draw = np.random.default_rng(seed)
    x, y = draw.normal(5, 3, (40, 3)), draw.integers(0, 4, 40)
    a, b = sorted((cut, again))
    parts = [ClassGaussians.from_points(x[s], y[s], 4) for s in (slice(0, a), slice(a, b), slice(b, None))]
    whole, merged = ClassGaussians.from_points(x, y, 4), parts[0].merge(parts[1]).merge(parts[2])
    assert merged.count.tolist() == whole.count.tolist()
    np.testing.assert_allclose(merged.mean, whole.mean, atol=1e-10)
    np.testing.assert_allclose(merged.scatter, whole.scatter, atol=1e-9)


def test_closed_form_is_a_mixture_of_one():
    x, y = clusters(3, features=4)
    floor = 1e-3
    covariances = ClassGaussians.from_points(x, y, 3).covariance(floor)
    for c in range(3):
        mixture = GaussianMixture(1, reg_covar=floor, random_state=0).fit(x[y == c])
        np.testing.assert_allclose(covariances[c], mixture.covariances_[0], rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(x[y == c].mean(0), mixture.means_[0], rtol=1e-7)


def test_scarce_classes_use_the_pooled_covariance_with_a_warning():
    x, y = clusters(4)
    keep = (y != 2) | (np.arange(len(y)) == 130)  # one sample of class 2
    with pytest.warns(RandomSetWarning, match="class 2: at most 3 samples"):
        budgeter = Budgeter(5).fit(x[keep], y[keep])
    assert budgeter.budget_.num_classes == 4
    sums = budgeter.gaussians_
    common = sums.scatter.sum(0) / sums.count.sum()
    np.testing.assert_allclose(sums.covariance(0.0)[2], common)
    assert "class 2" in budgeter.report_.warnings[0]


def test_class_of_identical_points():
    x, y = clusters(3)
    x[y == 1] = x[y == 1][0]
    assert np.isfinite(Budgeter(3).fit(x, y).overlaps_).all()


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
